"""Measures how well a model understands answers: the probability of guesses that fit them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from agentsgym.envs.settings import EnvSettings
from agentsgym.envs.twenty_questions.agents import RandomTeacher
from agentsgym.envs.twenty_questions.best_play import BestPlay
from agentsgym.envs.twenty_questions.knowledge import KnowledgeTable
from agentsgym.types import Agent, Rollout, RolloutBatch, Row, Tokenizer

_ANSWERS = {"Yes": True, "No": False}


class GuessingGame(Protocol):
    """The part of the environment that is measured with."""

    table: KnowledgeTable

    @property
    def config(self) -> EnvSettings: ...

    @property
    def best_play(self) -> BestPlay: ...

    def hints(self, solution: str, seed: int) -> list[tuple[str, bool]]: ...

    def with_tokenizer(self, tokenizer: Tokenizer | None) -> Self: ...

    def get_eval_dataset(self) -> Any: ...

    def run_trial(self, task_data_list: list[Mapping[str, Any]], agent: Agent) -> RolloutBatch: ...


def guess_figures(model: Any, tokenizer: Any, env: GuessingGame) -> dict[str, float]:
    """The model's `consistent_mass`, and what blind guessing has as `chance_mass`.

    Empty in trials of several episodes, because the figures are those of a single game, and where a
    guess has several tokens: it then takes a pass over the game for each secret in each state,
    hours for the 609 secrets of the default table.
    """
    if env.config.episodes_per_trial > 1:
        return {}
    if any(len(guess) > 1 for guess in _guesses(tokenizer, env)):
        return {}
    found = consistent_mass(model, tokenizer, env)
    return {"consistent_mass": found["mean"], "chance_mass": found["chance"]}


def _guesses(tokenizer: Any, env: GuessingGame) -> list[list[int]]:
    """The tokens of each secret as a guess."""
    return [tokenizer.encode(f"[{s}]", add_special_tokens=False) for s in env.table.secrets]


@torch.no_grad()
def consistent_mass(
    model: Any,
    tokenizer: Any,
    env: GuessingGame,
    *,
    games: int = 128,
    seed: int = 0,
    tasks: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, float]:
    """The probability that the model puts on guesses consistent with the answers.

    `games` games on `tasks` (default: the environment's evaluation tasks) are played by asking
    random attributes until the steps run out. In the state before each action, every secret w of
    the table gets p(w), the probability of saying "[w]" divided by the sum over all secrets. The
    result is the sum of p(w) over the secrets that agree with the hints and all answers so far.
    "mean" averages it over all states, "after_k" over states with k answers beyond the hints.
    "chance" is the mean fraction of consistent secrets: the result of a blind guess.
    """
    player = env.with_tokenizer(tokenizer)
    tasks = list(env.get_eval_dataset()["task_data"]) if tasks is None else list(tasks)
    chosen = np.random.default_rng(seed).integers(len(tasks), size=games).tolist()
    teacher = RandomTeacher(player, seed, skill=(0.0, 0.0), guesses=False)
    rollouts = player.run_trial([tasks[i] for i in chosen], teacher).rollouts
    guesses = _guesses(tokenizer, env)
    masses: dict[int, list[float]] = defaultdict(list)
    shares: list[float] = []
    for rollout in rollouts:
        agrees = _agreement(player, rollout)
        probabilities = guess_probabilities(model, rollout.rows[0], guesses)
        shares += agrees.mean(axis=1).tolist()
        for step, mass in enumerate((probabilities * agrees).sum(axis=1).tolist()):
            masses[step].append(mass)
    everything = [mass for values in masses.values() for mass in values]
    figures = {"mean": float(np.mean(everything)), "chance": float(np.mean(shares))}
    return figures | {f"after_{k}": float(np.mean(masses[k])) for k in sorted(masses)}


@torch.no_grad()
def guess_probabilities(
    model: Any, row: Row, guesses: Sequence[Sequence[int]]
) -> npt.NDArray[np.float64]:
    """p(guess) before each step of a row, shape (steps, guesses), each line summing to 1.

    A guess's probability is the product over its tokens. One pass over the row gives the first
    tokens; the later tokens cost one more pass per state.
    """
    device = next(model.parameters()).device
    ids: list[int] = row.token_ids.tolist()
    context = torch.tensor([ids], device=device)
    starts = [span.start for span in row.spans]
    first = model(context).logits[0, [start - 1 for start in starts]].float().log_softmax(-1)
    scores = first[:, [guess[0] for guess in guesses]]
    for k, start in enumerate(starts):
        scores[k] += _continuation(model, ids[:start], guesses, device)
    result: npt.NDArray[np.float64] = scores.double().softmax(-1).cpu().numpy()
    return result


def _continuation(
    model: Any, context: Sequence[int], guesses: Sequence[Sequence[int]], device: torch.device
) -> torch.Tensor:
    """Log-probability of each guess's tokens after its first, shape (guesses,)."""
    longest = max(len(guess) for guess in guesses)
    if longest == 1:
        return torch.zeros(len(guesses), device=device)
    ids = torch.zeros((len(guesses), longest), dtype=torch.int64)
    known = torch.zeros((len(guesses), longest))
    for i, guess in enumerate(guesses):
        ids[i, : len(guess)] = torch.tensor(guess)
        known[i, 1 : len(guess)] = 1.0
    ids, known = ids.to(device), known.to(device)
    prefix = torch.tensor([context], device=device).expand(len(guesses), -1)
    logits = model(torch.cat([prefix, ids], dim=1)).logits[:, len(context) : -1].float()
    steps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    total: torch.Tensor = (steps * known[:, 1:]).sum(-1)
    return total


def _agreement(env: GuessingGame, rollout: Rollout) -> npt.NDArray[np.bool_]:
    """Which secrets agree with the hints and the answers before each step, (steps, secrets)."""
    task = rollout.task_data
    known: list[tuple[str, bool | None]] = [*env.hints(task["solution"], task.get("seed", 0))]
    lines = []
    for step in rollout.episodes[-1].steps:
        consistent = set(env.best_play.consistent(known))
        lines.append([secret in consistent for secret in env.table.secrets])
        known.append((step.info["attribute"], _ANSWERS.get(step.info["answer"])))
    return np.array(lines, dtype=np.bool_)
