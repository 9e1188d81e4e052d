"""Tasks of the bandit: a seed determines arms and outcomes, and the split.

All random numbers are hashes of the seed. The n-th pull of an arm in the e-th episode of a trial
draws the same uniform number u(seed, e, arm, n) in every rollout and succeeds if u is below the
arm's probability (common random numbers). So rollouts of a group differ only by their pulls, which
removes luck from their comparison; another episode has new noise.
"""

import random
from collections.abc import Mapping
from typing import Any

from agentsgym.envs.bandit.beliefs import Prior
from agentsgym.types import session_seed

FIRST_EVAL_SEED = 1_000_000


def outcome(probability: float, seed: int, episode: int, arm: int, pull: int) -> bool:
    """Whether pull number `pull` (from 0) of `arm` in this episode of a trial succeeds."""
    return session_seed("bandit", seed, episode, arm, pull) / 2**63 < probability


def draw_probabilities(seed: int, arms: int, prior: Prior) -> tuple[float, ...]:
    """The arms of a task: independent draws from Beta(prior)."""
    rng = random.Random(f"bandit-{seed}")
    return tuple(rng.betavariate(*prior) for _ in range(arms))


def read_task(
    task_data: Mapping[str, Any], arms: int, prior: Prior
) -> tuple[int, tuple[float, ...]]:
    """(seed, success probabilities) of a task. Raises ValueError with the task's problem.

    `seed` is an int (0 if only `probabilities` are given, which then are the arms).
    """
    seed = task_data.get("seed", 0 if "probabilities" in task_data else None)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"task_data needs a 'seed' (an int) or 'probabilities', got {task_data!r}")
    given = task_data.get("probabilities")
    if given is None:
        return seed, draw_probabilities(seed, arms, prior)
    numbers = [p for p in given if isinstance(p, int | float) and 0 <= p <= 1]
    if len(numbers) != len(given) or len(given) != arms:
        raise ValueError(
            f"task_data['probabilities'] must be {arms} numbers in [0, 1], got {given!r}"
        )
    return seed, tuple(float(p) for p in numbers)
