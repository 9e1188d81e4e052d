"""The tasks, and the source of their games: official data if installed, else generated games."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentsgym.child_process import python_environment, run_python
from agentsgym.envs.alfworld.generator import GAME_FILE, TASK_TYPES, generate
from agentsgym.envs.command_game import GenerationFailed
from agentsgym.envs.extras import ensure
from agentsgym.envs.settings import task_directories
from agentsgym.types import checked_path, is_under, real_path

GENERATOR_VERSION = "v1"
"""Part of the cache's path; increased whenever the generator's games change."""
LAST_SEED = 2**31 - 1
SPLITS = ("train", "valid_seen", "valid_unseen")

_log = logging.getLogger(__name__)


class NoGames(LookupError):
    """There are no games in the folder that the configuration names."""


def data_root(setting: str | None) -> Path | None:
    """The folder with the official splits: `setting`, else ALFWORLD_DATA; None without games.

    Raises NoGames if `setting` contains no split.
    """
    folder = setting or os.environ.get("ALFWORLD_DATA")
    if not folder:
        return None
    root = Path(os.path.expandvars(folder)).expanduser()
    for candidate in (root, root / "json_2.1.1"):
        if any((candidate / split).is_dir() for split in SPLITS):
            return candidate
    if setting:
        raise NoGames(f"{root} has none of the folders {', '.join(SPLITS)} (nor json_2.1.1/)")
    return None


def find_game(
    task_data: Mapping[str, Any], root: Path | None, cache: Path, *, trusted: bool
) -> Path:
    """The file of a task's game, which may be named relative to `root`, and is generated again in
    `cache` if the task says how. Official splits may be links. See `ALFWorldEnv.game_file`."""
    name = task_data.get("game_file")
    if not isinstance(name, str):
        raise ValueError(f"task_data needs a 'game_file' (a path), got {dict(task_data)!r}")
    official = [] if root is None else [root, *(root / split for split in SPLITS)]
    allowed = [*task_directories(trusted=trusted), *map(real_path, (cache, *official))]
    for base in (Path(), *official[:1]):
        file = real_path(base / name)
        if is_under(file, allowed) and file.is_file():
            return file
    if all(key in task_data for key in ("seed", "task_type", "split")):
        return _generated_again(task_data, cache)
    if root is None or Path(name).is_absolute():
        checked_path(name, allowed)
    raise FileNotFoundError(f"there is no game {name}")


def _generated_again(task_data: Mapping[str, Any], cache: Path) -> Path:
    """Raises ValueError for a value unknown to the generator: all three are part of a path."""
    kind, split, seed = task_data["task_type"], task_data["split"], task_data["seed"]
    for key, value, allowed in (("task_type", kind, tuple(TASK_TYPES)), ("split", split, SPLITS)):
        if value not in allowed:
            raise ValueError(f"task_data: {key!r} must be one of {', '.join(allowed)}")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LAST_SEED:
        raise ValueError(f"task_data: 'seed' must be an int from 0 to {LAST_SEED}")
    return generate(game_folder(cache, split, kind, seed), kind, split, seed)


def official_tasks(
    root: Path, split: str, task_types: Sequence[str], limit: int | None
) -> list[dict[str, Any]]:
    """Solvable games of a split, sorted by path, without games that need slicing or moving."""
    tasks = [
        {"game_file": path, "task_type": kind, "split": split}
        for path, kind in _solvable(str(root / split))
        if kind in task_types
    ]
    if not tasks:
        raise NoGames(f"no solvable game of {', '.join(task_types)} in {root / split}")
    return tasks[:limit]


@lru_cache(maxsize=8)
def _solvable(folder: str) -> list[tuple[str, str]]:
    solvable = []
    for game_file in sorted(Path(folder).rglob(GAME_FILE)):
        path, kind = str(game_file), game_file.parent.parent.name.partition("-")[0]
        if kind not in TASK_TYPES or "movable" in path or "Sliced" in path:
            continue
        if json.loads(game_file.read_text()).get("solvable"):
            solvable.append((path, kind))
    return solvable


def generated_tasks(
    root: Path, split: str, task_types: Sequence[str], count: int
) -> list[dict[str, Any]]:
    """`count` generated games, cycling through the task types. Missing games are made, in a child
    process, so that this process never loads the engine. `seed` marks a generated game.

    Raises MissingExtra, GenerationFailed.
    """
    tasks: list[dict[str, Any]] = []
    for number in range(count):
        seed, position = divmod(number, len(task_types))
        kind = task_types[position]
        path = game_folder(root, split, kind, seed) / GAME_FILE
        tasks.append({"game_file": str(path), "task_type": kind, "split": split, "seed": seed})
    missing = [task for task in tasks if not os.path.exists(task["game_file"])]
    if missing:
        ensure("alfworld", "alfworld")
        _log.info("generating %d ALFWorld games, about 0.5 s each", len(missing))
        process = run_python(
            "agentsgym.envs.alfworld.generator", input=json.dumps(missing), env=python_environment()
        )
        if process.returncode != 0:
            raise GenerationFailed(f"the generator failed:\n{process.stderr[-2000:]}")
    return tasks


def game_folder(root: Path, split: str, task_type: str, seed: int) -> Path:
    """The folder of a generated game."""
    return root / GENERATOR_VERSION / split / task_type / f"{seed:06d}"
