"""Warm start: supervised training on scripted games, before reinforcement learning.

Games are played through the environment itself, so the model reads the same kind of transcripts
that it will write later, and learns only from the agent's tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from agentsgym.envs.base import MultistepEnv
from agentsgym.training.warm_start.config import WarmStartConfig
from agentsgym.training.warm_start.games import ScriptedGames, texts_of
from agentsgym.training.warm_start.imitation import imitation_loss
from agentsgym.training.warm_start.tiny import build_model, build_tokenizer
from agentsgym.types import Agent

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Receives (steps done, total steps, {"loss", "lr"})."""

_REPORTS = 100  # total number of progress reports


@dataclass(frozen=True, slots=True)
class WarmStartResult:
    """A model, its tokenizer, and figures: `games`, `steps`, `parameters`, `vocabulary`, `loss`
    (nats per target, mean over the last tenth of the updates), `first_loss`, `tokens_per_action`
    and `tokens_per_observation` (means, without the template's markers)."""

    model: Any
    tokenizer: Any
    figures: dict[str, float]


def warm_start(
    env: MultistepEnv,
    agent: Agent,
    config: WarmStartConfig | None = None,
    seed: int = 0,
    *,
    tasks: Sequence[Mapping[str, Any]] | None = None,
    progress: Progress | None = None,
) -> WarmStartResult:
    """Build a tiny model and its tokenizer from games that `agent` plays.

    `tasks` (default: the environment's training tasks) are played in random order, again and
    again. Equal arguments on one machine give equal weights, if the agent's answers depend only on
    its own seed; the number of torch threads counts as an argument. Raises ValueError without
    tasks, RuntimeError if a game fails.
    """
    config = config or WarmStartConfig()
    tasks = list(env.get_train_dataset()["task_data"]) if tasks is None else list(tasks)
    if not tasks:
        raise ValueError("a warm start needs at least one task")
    rng = np.random.default_rng(seed)
    games = ScriptedGames(env, agent, tasks, rng)
    texts = texts_of(games.play(config.tokenizer_games))
    tokenizer = build_tokenizer(
        (text for pair in texts for text in pair),
        config.vocab_size,
        max_token_length=config.max_token_length,
    )
    model = build_model(tokenizer, config.model, seed)
    games.env = env.with_tokenizer(tokenizer)
    losses = imitate(model, games.endless(tokenizer, config), config, progress)
    figures = {
        "games": float(config.steps * config.batch_size),
        "steps": float(config.steps),
        "parameters": float(sum(p.numel() for p in model.parameters())),
        "vocabulary": float(len(tokenizer)),
        "first_loss": losses[0],
        "loss": float(np.mean(losses[-max(1, len(losses) // 10) :])),
        "tokens_per_action": _mean_tokens(tokenizer, [action for _, action in texts]),
        "tokens_per_observation": _mean_tokens(tokenizer, [seen for seen, _ in texts]),
    }
    return WarmStartResult(model, tokenizer, figures)


def imitate(
    model: Any,
    stream: Iterator[tuple[torch.Tensor, torch.Tensor]],
    config: WarmStartConfig,
    progress: Progress | None = None,
) -> list[float]:
    """Train `model` in place on (ids, weights) batches; returns the loss of each update."""
    optimizer = torch.optim.AdamW(
        model.parameters(), weight_decay=config.weight_decay, betas=(0.9, config.beta2)
    )
    every = max(1, config.steps // _REPORTS)
    losses: list[float] = []
    model.train()
    for step in range(config.steps):
        lr = config.lr_at(step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss = imitation_loss(model, *next(stream))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimizer.step()
        losses.append(float(loss.detach()))
        if progress is not None and (step + 1) % every == 0:
            progress(step + 1, config.steps, {"loss": float(np.mean(losses[-every:])), "lr": lr})
    model.eval()
    return losses


def describe(config: WarmStartConfig) -> dict[str, Any]:
    """The configuration as plain data, for a file of figures."""
    return asdict(config)


def _mean_tokens(tokenizer: Any, texts: Sequence[str]) -> float:
    encoded = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return float(np.mean([len(ids) for ids in encoded]))
