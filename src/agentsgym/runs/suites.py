"""Suites: those of the package, those in files, and their play."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.evaluation import Played, Suite, parse_suite, rollout_requests
from agentsgym.evaluation.suite import Game
from agentsgym.runs.config import RunConfig
from agentsgym.runs.contestant import Contestant
from agentsgym.runs.from_config import make_env
from agentsgym.runs.overrides import load_yaml
from agentsgym.types import RolloutRequest, session_seed

_ALL = 1 << 40  # more than any environment's held-out tasks


def suites() -> dict[str, str]:
    """Name and YAML text of every suite in the package."""
    folder = files("agentsgym") / "suites"
    found = {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    }
    return dict(sorted(found.items()))


def load_suite(source: str) -> Suite:
    """A suite of the package by its name, or the one in a YAML file. Raises ConfigError."""
    known = suites()
    if source in known:
        return parse_suite(load_yaml(known[source], f"suite {source!r}"), source)
    path = Path(source)
    if path.is_file():
        return parse_suite({"name": path.stem, **load_yaml(path.read_bytes(), source)}, source)
    raise ConfigError(f"{source!r} is neither a file nor a suite; suites: {', '.join(known)}")


def place_of(game: Game, run: RunConfig) -> RunConfig:
    """The run of a model in a game's environment."""
    return run.model_copy(update={"env": game.env, "env_config": dict(game.env_config)})


def requests_of(
    game: Game, place: RunConfig, seed: int, most_tasks: int | None = None
) -> list[RolloutRequest]:
    """What is played in a game; `most_tasks` takes its first tasks only.

    Raises ConfigError for a task that the environment refuses, or if there are too few.
    """
    env, count = make_env(place), game.rollouts_per_task
    seed = session_seed(seed, game.name)  # so that the games' noise is independent
    tasks = game.frozen_tasks
    if tasks is None:
        assert game.episodes is not None
        rows = list(env.get_eval_dataset())
        asked = rollout_requests(rows, game.episodes, rollouts_per_task=count, seed=seed)
    else:
        rows = [_row(env, game, task) for task in tasks]
        asked = rollout_requests(rows, len(rows) * count, rollouts_per_task=count, seed=seed)
    wanted = _ALL if most_tasks is None else most_tasks
    return [request for request in asked if request.group < wanted]


def _row(env: Any, game: Game, task: dict[str, Any]) -> dict[str, Any]:
    problem = env.check_task(task)
    if problem is not None:
        raise ConfigError(f"{game.name}: {problem}")
    return {"env_class_path": env.class_path, "env_config": env.row_config, "task_data": task}


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

    With `output`, each game is saved in a directory of its name, and continued from there.
    """
    return [
        _play(
            game, player, seed, most_tasks, None if output is None else output / game.name, on_game
        )
        for game in suite.games
    ]


def _play(
    game: Game,
    player: Contestant,
    seed: int,
    most_tasks: int | None,
    output: Path | None,
    on_game: Callable[[str], None],
) -> Played | None:
    place = place_of(game, player.run)
    asked = requests_of(game, place, seed, most_tasks)
    on_game(game.name)
    if not player.has_agent_for(place):
        return None
    return player.play(place, asked, seed=seed, output=output)
