"""A new tiny model and its tokenizer, made from games that are played as they are needed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import tasks_of
from agentsgym.types import Agent, Rollout
from agentsgym.warm_start.fit import Progress, imitate, no_progress
from agentsgym.warm_start.games import GameStream
from agentsgym.warm_start.lessons import Example
from agentsgym.warm_start.players import BEST, GAMES, Figures, halfway, player_of, scripted_players
from agentsgym.warm_start.players import figures as figures_of
from agentsgym.warm_start.settings import WarmStartSettings
from agentsgym.warm_start.tiny import build_model, build_tokenizer


@dataclass(frozen=True, slots=True)
class WarmStartResult:
    """A model, its tokenizer, and figures: `games`, `steps`, `parameters`, `vocabulary`, `loss`
    (nats per target, mean over the last tenth of the updates), `first_loss`, `tokens_per_action`
    and `tokens_per_observation` (means, without the template's markers). `games` are those of which
    the tokenizer was made; `players` has the teacher, the imitator and others side by side. `late`
    says whether the time was used up."""

    model: Any
    tokenizer: Any
    figures: dict[str, float]
    games: tuple[Rollout, ...] = ()
    players: dict[str, Figures] = field(default_factory=dict)
    late: bool = False


def warm_start(
    env: MultistepEnv,
    agent: Agent,
    settings: WarmStartSettings | None = None,
    seed: int = 0,
    *,
    tasks: Sequence[Mapping[str, Any]] | None = None,
    first: tuple[MultistepEnv, Agent] | None = None,
    progress: Progress = no_progress,
) -> WarmStartResult:
    """Build a tiny model and its tokenizer from games that `agent` plays.

    `tasks` (default: the environment's training tasks) are played in random order, again and
    again; in the first `first_steps` updates the training tasks of `first`, an environment and who
    plays it. The tokenizer is made from games of `env`. Equal arguments on one machine give equal
    weights, if the agent's answers depend only on its own seed; the number of torch threads counts
    as an argument. Without `steps` in the settings it ends once its games are as legal and as good
    as the agent's, where the best of several are imitated at least halfway to these. Raises
    ValueError without tasks or for a setting without effect, RuntimeError if a game fails.
    """
    is_open = settings is None or settings.steps is None
    settings = (settings or WarmStartSettings()).resolved(new_model=True)
    assert settings.steps is not None and settings.batch_size is not None
    tasks = list(tasks_of(env, "train")["task_data"]) if tasks is None else list(tasks)
    if not tasks:
        raise ValueError("a warm start needs at least one task")
    tasks, tried = _apart(tasks, settings.best_of > 1, seed)
    stream = GameStream(env, agent, tasks, settings, seed)
    games = stream.play(settings.tokenizer_games)
    texts = _texts(games)
    tokenizer = build_tokenizer(
        (text for part in texts.values() for text in part),
        settings.vocab_size,
        max_token_length=settings.max_token_length,
        pieces=settings.tokenizer,
        tools=env.offers_tools,
    )
    model = build_model(tokenizer, settings.model, seed)
    tokenized = env.with_tokenizer(tokenizer)
    stream.codec = tokenized.codec
    early = stream
    if first is not None:
        few, player = first
        chosen = list(tasks_of(few, "train")["task_data"])
        early = GameStream(few, player, chosen, settings, seed)
        early.codec = few.with_tokenizer(tokenizer).codec

    def batch(step: int) -> list[Example]:
        return (early if step < settings.first_steps else stream).batch(step)

    players = scripted_players(env, agent, tried)
    wanted = players["teacher"]
    if settings.best_of > 1:
        players[BEST] = figures_of(stream.best(GAMES))
        wanted = halfway(wanted, players[BEST])
    longest = max(_tokens(tokenizer, texts["tokens_per_action"]))

    def learned() -> bool:
        with player_of(model, tokenizer, longest + 1, seed) as player:
            played = tokenized.run_trial(tried, player).rollouts
        players["imitator"] = figures_of(played)
        return players["imitator"].reaches(wanted)

    asked = learned if is_open else None
    pad_id = tokenizer.pad_token_id
    result = imitate(model, batch, settings, pad_id=pad_id, progress=progress, learned=asked)
    learned()
    figures = {
        "games": float(result.steps * settings.batch_size),
        "steps": float(result.steps),
        "parameters": float(sum(p.numel() for p in model.parameters())),
        "vocabulary": float(len(tokenizer)),
        "first_loss": result.first_loss,
        "loss": result.loss,
    } | {name: float(np.mean(_tokens(tokenizer, part))) for name, part in texts.items()}
    return WarmStartResult(model, tokenizer, figures, games, players, result.late)


def _apart(
    tasks: list[Mapping[str, Any]], by_luck: bool, seed: int
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The tasks of the games that are imitated, and those on which the players are compared: others
    if games are chosen `by_luck`, whose outcome can be learned by heart, and there are enough."""
    rng = np.random.default_rng(seed)
    apart = rng.permutation(len(tasks))[: min(GAMES, len(tasks) // 5) if by_luck else 0]
    played = [task for k, task in enumerate(tasks) if k not in apart]
    tried = [tasks[k] for k in apart] or tasks
    return played, [tried[k] for k in rng.integers(len(tried), size=GAMES)]


def _texts(games: Sequence[Rollout]) -> dict[str, list[str]]:
    """What is read and written in games, calls of tools as the tiny template writes them."""
    texts: dict[str, list[str]] = {"tokens_per_action": [], "tokens_per_observation": []}
    for message in (one for game in games for e in game.episodes for one in e.messages):
        if message.role == "assistant":
            calls = [call["function"] for call in message.tool_calls]
            texts["tokens_per_action"] += [json.dumps(call, ensure_ascii=False) for call in calls]
            if message.content or not calls:
                texts["tokens_per_action"].append(message.content)
        elif message.role != "system":
            texts["tokens_per_observation"].append(message.content)
    return texts


def _tokens(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    """The number of tokens of each text."""
    return [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
