"""Suites: lists of tasks in several environments, those of the package and those in files."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from agentsgym.envs import ConfigError
from agentsgym.envs.dataset import tasks_of
from agentsgym.evaluation import Played, rollout_requests
from agentsgym.runs.from_config import make_env
from agentsgym.runs.players import Contestant
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.sources import named_yaml, shipped_yaml
from agentsgym.runs.trust import outside_of_env
from agentsgym.types import RolloutRequest, session_seed
from agentsgym.types.names import is_foreign
from agentsgym.types.settings import Section, read

MOST_TASKS = 100_000


class SuiteGame(Section):
    """Tasks of one environment: listed `tasks`, or as many of its held-out ones as `tasks` says,
    or the `seeds` of tasks {"seed": …}."""

    name: str = Field(pattern=r"^[\w-]+$")
    env: str
    env_config: dict[str, Any] = Field(default_factory=dict)
    tasks: (
        Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_TASKS)]
        | Annotated[int, Field(ge=1, le=MOST_TASKS)]
        | None
    ) = None
    seeds: list[int] = Field(default_factory=list, max_length=MOST_TASKS)
    rollouts_per_task: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.seeds) == (self.tasks is not None):
            raise ValueError("give either tasks (a list, or a number of held-out ones) or seeds")
        return self

    @property
    def listed_tasks(self) -> list[dict[str, Any]] | None:
        """The tasks; None if the environment's held-out tasks are played."""
        if isinstance(self.tasks, int):
            return None
        return self.tasks or [{"seed": seed} for seed in self.seeds]


class Suite(Section):
    """Games with a name. Figures of suites with one `digest` can be compared."""

    name: str
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
        """A hash of everything that is played."""
        data = self.model_dump(mode="json", exclude={"description"})
        text = json.dumps(data, sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def suites() -> dict[str, str]:
    """Name and YAML text of every suite in the package."""
    return shipped_yaml("suites")


def load_suite(source: str) -> Suite:
    """A suite of the package by its name, or the one in a YAML file. Raises ConfigError with the
    key that is wrong."""
    data = {"name": Path(source).stem, **named_yaml(source, "suite")}
    return read(Suite, data, f"{source}.")


def check_names(suite: Suite) -> None:
    """Raise ConfigError for code, files or servers that a suite names: it is made to be passed
    on."""
    for game in suite.games:
        outside: dict[str, Any] = {"env": game.env}
        if not is_foreign(game.env):
            outside = outside_of_env(game.env, game.env_config)
        for key, value in outside.items():
            raise ConfigError(
                f"{game.name}: the suite names {key}={value}; if you trust it, add --trust"
            )


def place_of(game: SuiteGame, run: RunConfig) -> RunConfig:
    """The run of a model in a game's environment."""
    return run.model_copy(update={"env": game.env, "env_config": dict(game.env_config)})


def requests_of(
    game: SuiteGame, place: RunConfig, seed: int, most_tasks: int | None = None
) -> list[RolloutRequest]:
    """What is played in a game; `most_tasks` takes its first tasks only. Raises ConfigError for a
    task that the environment refuses."""
    env, count = make_env(place), game.rollouts_per_task
    tasks = game.listed_tasks
    if tasks is None:
        rows = list(tasks_of(env, "eval"))
    else:
        rows = [
            {"env_class_path": env.class_path, "env_config": env.env_config, "task_data": task}
            for task in tasks
        ]
        for problem in filter(None, map(env.check_task, tasks)):
            raise ConfigError(f"{game.name}: {problem}")
    requests = rollout_requests(
        rows,
        (game.tasks if isinstance(game.tasks, int) else len(rows)) * count,
        rollouts_per_task=count,
        seed=session_seed(seed, game.name),  # so that the games' noise is independent
    )
    return [request for request in requests if most_tasks is None or request.group < most_tasks]


def play_suite(
    suite: Suite,
    player: Contestant,
    *,
    seed: int,
    most_tasks: int | None = None,
    output: Path | None = None,
    on_game: Callable[[str], None] = lambda name: None,
) -> dict[str, Played]:
    """Let the model play every game, apart from those without the scripted agent that is asked
    for; by the games' names. With `output`, each game is saved in a directory of its name, and
    continued from there. Raises ConfigError for a wrong game before any is played."""
    places = {game.name: place_of(game, player.run) for game in suite.games}
    requests = {
        game.name: requests_of(game, places[game.name], seed, most_tasks) for game in suite.games
    }
    results: dict[str, Played] = {}
    for name, place in places.items():
        if player.has_agent_for(place):
            on_game(name)
            own = None if output is None else output / name
            results[name] = player.play(place, requests[name], seed=seed, output=own)
    return results
