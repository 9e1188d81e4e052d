"""Measures how well a model understands answers: the probability of guesses that fit them.

`env` is a `TwentyQuestionsEnv`, which imports this module when it measures.
"""

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agentsgym.types import Rollout, Row
from agentsgym.types.records import Floats

_ANSWERS = {"Yes": True, "No": False}


def guess_figures(model: Any, tokenizer: Any, env: Any) -> dict[str, float]:
    """The model's `consistent_mass`, and what blind guessing has as `chance_mass`.

    Empty in trials of several episodes, because the figures are those of a single game, and where a
    guess has several tokens: it would then take a pass over the game for each secret in each state,
    hours for the 609 secrets of the default table.
    """
    if env.config.episodes_per_trial > 1 or _guesses(tokenizer, env) is None:
        return {}
    figures = consistent_mass(model, tokenizer, env)
    return {"consistent_mass": figures["mean"], "chance_mass": figures["chance"]}


def _guesses(tokenizer: Any, env: Any) -> list[int] | None:
    """The token of each secret as a guess; None if one has several."""
    tokens = [tokenizer.encode(f"[{s}]", add_special_tokens=False) for s in env.table.secrets]
    return None if any(len(guess) > 1 for guess in tokens) else [guess[0] for guess in tokens]


@torch.no_grad()
def consistent_mass(model: Any, tokenizer: Any, env: Any, *, games: int = 128) -> dict[str, float]:
    """The probability that the model puts on guesses consistent with the answers.

    `games` games on evaluation tasks are played by asking random attributes until the steps run
    out. In the state before each action, every secret w of the table gets p(w), the probability of
    saying "[w]" divided by the sum over all secrets. The result is the sum of p(w) over the secrets
    that agree with the hints and all answers so far. "mean" averages it over all states, "after_k"
    over states with k answers beyond the hints. "chance" is the mean fraction of consistent
    secrets: the result of a blind guess. Raises ValueError if a guess has several tokens.
    """
    guesses = _guesses(tokenizer, env)
    if guesses is None:
        raise ValueError("each guess must be one token")
    player, attributes = env.with_tokenizer(tokenizer), env.table.attributes
    tasks = list(env.get_eval_dataset()["task_data"])
    chosen = np.random.default_rng(0).integers(len(tasks), size=games).tolist()
    blind = player.random_agent(lambda state, rng, _: rng.choice(attributes).question, 0)
    masses: dict[int, list[float]] = defaultdict(list)
    shares: list[float] = []
    for rollout in player.run_trial([tasks[i] for i in chosen], blind).rollouts:
        agrees = _agreement(player, rollout)
        probabilities = _guess_probabilities(model, rollout.rows[0], guesses)
        shares += agrees.mean(axis=1).tolist()
        for step, mass in enumerate((probabilities * agrees).sum(axis=1).tolist()):
            masses[step].append(mass)
    every = [mass for values in masses.values() for mass in values]
    figures = {"mean": float(np.mean(every)), "chance": float(np.mean(shares))}
    return figures | {f"after_{k}": float(np.mean(masses[k])) for k in sorted(masses)}


def _guess_probabilities(model: Any, row: Row, guesses: list[int]) -> Floats:
    """p(guess) before each step of a row, shape (steps, guesses), each line summing to 1."""
    ids = torch.tensor([row.token_ids.tolist()], device=next(model.parameters()).device)
    logits = model(ids).logits[0, [span.start - 1 for span in row.spans]].float()
    probabilities: Floats = logits[:, guesses].double().softmax(-1).cpu().numpy()
    return probabilities


def _agreement(env: Any, rollout: Rollout) -> npt.NDArray[np.bool_]:
    """Which secrets agree with the hints and the answers before each step, (steps, secrets)."""
    possible = env._initialize_episode("", dict(rollout.task_data))["possible"]
    lines = []
    for step in rollout.episodes[-1].steps:
        lines.append([bool(possible >> i & 1) for i in range(len(env.table.secrets))])
        answer = _ANSWERS.get(step.info["answer"])
        possible = env.best_play.agreeing(possible, step.info["attribute"], answer)
    return np.array(lines, dtype=np.bool_)
