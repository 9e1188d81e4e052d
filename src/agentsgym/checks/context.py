"""The context of every check: new environment objects, tasks, and the time budget."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsgym.checks.players import RandomPlayer, Task, play_alone
from agentsgym.envs.base import MultistepEnv
from agentsgym.types import Tokenizer

MOST_TASKS = 16
_SHARE = 16
"""A check may take this fraction of the whole budget."""


@dataclass(slots=True)
class Context:
    """One environment under check.
    `make` returns a new object of the environment. `train` and `held_out` are its tasks (None if
    it defines none); `given` are tasks from the caller. `budget` is in seconds.
    """

    make: Callable[[Tokenizer | None], MultistepEnv]
    env: MultistepEnv
    train: list[Task] | None
    held_out: list[Task] | None
    given: list[Task]
    budget: float
    seed: int = 0
    importable: bool = False
    """Whether another process can make the environment by its name."""

    episode_seconds: float = 0.0
    steps_per_second: float = 0.0
    yardstick: Any = None
    """Set by `constants.yardstick`."""

    drawn: list[Task] = field(init=False)
    """All tasks in a random order: the caller's first, then at least one each for training and for
    evaluation, where there are such tasks."""

    @property
    def share(self) -> float:
        """Seconds that one check may take."""
        return self.budget / _SHARE

    @property
    def pool(self) -> list[Task]:
        """All available tasks, training tasks first."""
        return [*self.given, *(self.train or []), *(self.held_out or [])]

    def measure(self) -> None:
        """Play a few trials to measure how long one takes."""
        player = RandomPlayer(self.seed)
        env = self.make(None)
        began = time.perf_counter()
        records = play_alone(env, self.drawn[:1], player)
        if time.perf_counter() - began < self.budget / 100:
            records += play_alone(env, self.drawn[1:4], player, first=1)
        taken = max(time.perf_counter() - began, 1e-6)
        self.episode_seconds = taken / len(records)
        self.steps_per_second = sum(record.steps for record in records) / taken

    def tasks(self, plays: float = 1.0, *, least: int = 2, most: int = MOST_TASKS) -> list[Task]:
        """Tasks that can be played `plays` times each in this check's share of the budget.

        They are drawn at random with the check's seed, because tasks are often listed in a regular
        order; there may be fewer. A larger number has all tasks of a smaller one.
        """
        affordable = int(self.share / max(plays * self.episode_seconds, 1e-9))
        count = max(least, min(most, affordable))
        return self.drawn[:count]

    def __post_init__(self) -> None:
        if not self.pool:
            raise ValueError(
                f"{self.env.name} defines no tasks: give check_env some (tasks=[...]) or write "
                "get_train_dataset and get_eval_dataset"
            )
        self.drawn = self._draw(random.Random(self.seed))

    def _draw(self, rng: random.Random) -> list[Task]:
        sides = [_shuffled(side or [], rng) for side in (self.train, self.held_out)]
        rest = _shuffled([task for side in sides for task in side[1:]], rng)
        return [*self.given, *(task for side in sides for task in side[:1]), *rest]


def _shuffled(tasks: Sequence[Task], rng: random.Random) -> list[Task]:
    return rng.sample(tasks, len(tasks))
