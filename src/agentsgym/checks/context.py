"""What a check gets, new environment objects, tasks and a time budget, and what it finds."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agentsgym.checks.playing import Task, play_in_turn, random_player
from agentsgym.envs.base import MultistepEnv
from agentsgym.types import Rollout, Tokenizer

MOST_TASKS = 16
_SHARE = 16
"""A check may take this fraction of the whole budget."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: whether it passed, the evidence, warnings, and the numbers behind it."""

    name: str
    passed: bool
    evidence: str
    warnings: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)


class Passed(NamedTuple):
    """What a check returns if the environment passes it: see `Finding`."""

    evidence: str
    warnings: tuple[str, ...] = ()
    numbers: Mapping[str, float] = {}


class Failed(Exception):
    """What a check raises if the environment fails it; the message is the evidence."""


@dataclass(slots=True, eq=False)
class Context:
    """One environment under check.
    `make` returns a new object of the environment. `train` and `held_out` are its tasks (None if
    it defines none); `extra` are tasks from the caller. `budget` is in seconds.
    """

    make: Callable[[Tokenizer | None], MultistepEnv]
    env: MultistepEnv
    train: list[Task] | None
    held_out: list[Task] | None
    extra: list[Task]
    budget: float
    seed: int = 0

    episode_seconds: float = 0.0

    sample: list[Task] = field(init=False)
    """All tasks in a random order: first one each of the caller's, of training and of evaluation,
    where there are such tasks, and then the caller's."""

    @property
    def share(self) -> float:
        """Seconds that one check may take."""
        return self.budget / _SHARE

    def measure(self) -> list[Rollout]:
        """Play a few trials to measure how long one takes."""
        player = random_player(self.seed)
        env = self.make(None)
        began = time.perf_counter()
        played = play_in_turn(env, self.sample[:1], player)
        if time.perf_counter() - began < self.budget / 100:
            played += play_in_turn(env, self.sample[1:4], player, first=1)
        self.episode_seconds = max(time.perf_counter() - began, 1e-6) / len(played)
        return played

    def tasks(self, plays: float = 1.0, *, least: int = 2, most: int = MOST_TASKS) -> list[Task]:
        """Tasks that can be played `plays` times each in this check's share of the budget.

        They are drawn at random with the check's seed, because tasks are often listed in a regular
        order; there may be fewer. A larger number has all tasks of a smaller one.
        """
        affordable = int(self.share / max(plays * self.episode_seconds, 1e-9))
        count = max(least, min(most, affordable))
        return self.sample[:count]

    def __post_init__(self) -> None:
        if not (self.extra or self.train or self.held_out):
            raise ValueError(
                f"{self.env.name} defines no tasks: give check_env some (tasks=[...]) or write "
                "get_train_dataset and get_eval_dataset"
            )
        rng = random.Random(self.seed)
        both = [side or [] for side in (self.extra, self.train, self.held_out)]
        sides = [rng.sample(side, len(side)) for side in both]
        rest = [task for side in sides[1:] for task in side[1:]]
        rng.shuffle(rest)
        first = [task for side in sides for task in side[:1]]
        self.sample = [*first, *sides[0][1:], *rest]
