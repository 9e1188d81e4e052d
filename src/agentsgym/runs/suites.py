"""Suites: those of the package, those in files, and their play."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.dataset import tasks_of
from agentsgym.evaluation import Played, Suite, parse_suite, rollout_requests
from agentsgym.evaluation.suite import SuiteGame
from agentsgym.runs.evaluate import Contestant
from agentsgym.runs.from_config import make_env
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.sources import named_yaml, shipped_yaml
from agentsgym.runs.trust import outside_of_env
from agentsgym.types import RolloutRequest, session_seed
from agentsgym.types.names import is_foreign


def suites() -> dict[str, str]:
    """Name and YAML text of every suite in the package."""
    return shipped_yaml("suites")


def load_suite(source: str) -> Suite:
    """A suite of the package by its name, or the one in a YAML file. Raises ConfigError."""
    return parse_suite({"name": Path(source).stem, **named_yaml(source, "suite")}, source)


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
    """What is played in a game; `most_tasks` takes its first tasks only.

    Raises ConfigError for a task that the environment refuses, or if there are too few.
    """
    env, count = make_env(place), game.rollouts_per_task
    episodes = env.config.episodes_per_trial
    if game.references is not None and len(game.references.best) != episodes:
        raise ConfigError(
            f"{game.name}: the references are for {len(game.references.best)} episodes, and a "
            f"trial has {episodes}"
        )
    tasks = game.frozen_tasks
    if tasks is None:
        rows = list(tasks_of(env, "eval"))
    else:
        rows = [
            {"env_class_path": env.class_path, "env_config": env.row_config, "task_data": task}
            for task in tasks
        ]
        for problem in filter(None, map(env.check_task, tasks)):
            raise ConfigError(f"{game.name}: {problem}")
    requests = rollout_requests(
        rows,
        game.episodes or len(rows) * count,
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
) -> list[Played | None]:
    """Let the model play every game. None for a game without the scripted agent that is asked for.

    With `output`, each game is saved in a directory of its name, and continued from there. Raises
    ConfigError for a wrong game before any is played.
    """
    places = [place_of(game, player.run) for game in suite.games]
    requests_by_game = [
        requests_of(game, place, seed, most_tasks)
        for game, place in zip(suite.games, places, strict=True)
    ]
    results: list[Played | None] = []
    for game, place, requests in zip(suite.games, places, requests_by_game, strict=True):
        on_game(game.name)
        own = None if output is None else output / game.name
        plays = player.has_agent_for(place)
        results.append(player.play(place, requests, seed=seed, output=own) if plays else None)
    return results
