"""A suite: a frozen list of tasks in several games, with the references of its figures."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from agentsgym.types.settings import Section, read

MOST_TASKS = 100_000


class References(Section):
    """Expected rewards in each episode of a trial: of a random player, of the best play, and of the
    best play without exploring; and the range of an episode's reward.

    `without` says what the last one is: "never_informing", the best play that never takes an
    informing action; or "scored_alone", the best play of one episode, as if the free shots had told
    nothing.
    """

    random: list[float]
    unexploring: list[float]
    best: list[float]
    without: Literal["never_informing", "scored_alone"]
    range: list[float] = Field(default=[0.0, 1.0], min_length=2, max_length=2)

    @model_validator(mode="after")
    def _same_episodes(self) -> Self:
        if not len(self.random) == len(self.unexploring) == len(self.best) > 0:
            raise ValueError("random, unexploring and best need one reward for each episode")
        return self


class SuiteGame(Section):
    """Tasks of one environment: listed `tasks`, the `seeds` of tasks {"seed": …}, or as many of the
    environment's own held-out tasks as `episodes` says."""

    name: str = Field(pattern=r"^[\w-]+$")
    env: str
    env_config: dict[str, Any] = Field(default_factory=dict)
    tasks: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_TASKS)
    seeds: list[int] = Field(default_factory=list, max_length=MOST_TASKS)
    episodes: int | None = Field(default=None, ge=1, le=MOST_TASKS)
    rollouts_per_task: int = Field(default=1, ge=1)
    references: References | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.tasks) + bool(self.seeds) + (self.episodes is not None) != 1:
            raise ValueError("give either tasks, or seeds, or episodes (held-out tasks)")
        return self

    @property
    def frozen_tasks(self) -> list[dict[str, Any]] | None:
        """The tasks; None if the environment's held-out tasks are played."""
        return self.tasks or [{"seed": seed} for seed in self.seeds] or None


class Suite(Section):
    """Games with a name and a version. Figures of suites with one `digest` can be compared."""

    name: str
    version: int = 1
    description: str = ""
    games: list[SuiteGame] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [game.name for game in self.games]
        if len(names) != len(set(names)):
            raise ValueError("two games have the same name")
        return self

    @property
    def digest(self) -> str:
        """A hash of everything that is played and compared with, apart from the description."""
        data = self.model_dump(mode="json", exclude={"description"})
        text = json.dumps(data, sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def parse_suite(data: Mapping[str, Any], source: str) -> Suite:
    """The suite in a mapping. Raises ConfigError with the key that is wrong."""
    return read(Suite, dict(data), f"{source}.")
