"""Tasks of the exploration games: a seed determines what is hidden, what each episode asks, and
which answers are wrong. So rollouts of a task differ only by their actions."""

import random
from collections.abc import Mapping
from typing import Any

from agentsgym.envs.exploration.game import Question
from agentsgym.types import session_seed

FIRST_EVAL_SEED = 1_000_000


def read_seed(task_data: Mapping[str, Any]) -> int:
    """The seed of a task. Raises ValueError if there is none."""
    seed = task_data.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"task_data needs a 'seed' (an int), got {task_data!r}")
    return seed


def hidden_values(seed: int, choices: int, facts: int) -> tuple[int, ...]:
    """The hidden value of each fact."""
    rng = random.Random(f"explore-{seed}")
    return tuple(rng.randrange(choices) for _ in range(facts))


def question_of(seed: int, episode: int, choices: int, facts: int) -> Question:
    """What an episode of the trial asks."""
    rng = random.Random(f"explore-{seed}-{episode}")
    return Question(rng.randrange(facts), rng.randrange(choices))


def answer_of(true: int, answers: int, noise: float, place: tuple[int, int, int, int, int]) -> int:
    """The answer to a query: with probability `noise` one of the others, each equally likely.

    `place` is (seed, episode, fact, query, number of the same query's repetition in the episode).
    """
    drawn = session_seed("explore", *place) / 2**63
    if drawn >= noise:
        return true
    other = min(int(drawn / noise * (answers - 1)), answers - 2)
    return other + (other >= true)
