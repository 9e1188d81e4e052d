"""The tasks, and the source of their games: official data if installed, else generated games."""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from agentsgym.child_process import python_environment, run_python
from agentsgym.envs.alfworld.generator import GAME_FILE, TASK_TYPES, GenerationFailed
from agentsgym.envs.extras import ensure
from agentsgym.types import is_under, real_path

GENERATOR_VERSION = "v1"
"""Part of the cache's path; increased whenever the generator's games change."""
LAST_SEED = 2**31 - 1
SPLITS = ("train", "valid_seen", "valid_unseen")

_log = logging.getLogger(__name__)


class Task(TypedDict):
    """`task_data` of ALFWorld. Only `game_file` is required.

    `seed` marks a generated game: if its file is missing, the same game is made again from `seed`,
    `task_type` and `split`.
    """

    game_file: str
    task_type: NotRequired[str]
    split: NotRequired[str]
    seed: NotRequired[int]


@dataclass(frozen=True, slots=True)
class Origin:
    """The values from which a game is generated."""

    task_type: str
    split: str
    seed: int


def generated_from(task_data: Mapping[str, Any]) -> Origin | None:
    """The values from which a task's game is generated; None for a task that only names a file.

    Raises ValueError for a value unknown to the generator, because all three are part of a path.
    """
    if not all(key in task_data for key in ("seed", "task_type", "split")):
        return None
    kind, split, seed = task_data["task_type"], task_data["split"], task_data["seed"]
    if not isinstance(kind, str) or kind not in TASK_TYPES:
        raise ValueError(f"task_data: 'task_type' must be one of {', '.join(TASK_TYPES)}")
    if not isinstance(split, str) or split not in SPLITS:
        raise ValueError(f"task_data: 'split' must be one of {', '.join(SPLITS)}")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LAST_SEED:
        raise ValueError(f"task_data: 'seed' must be an int from 0 to {LAST_SEED}")
    return Origin(kind, split, seed)


class NoGames(LookupError):
    """There are no games in the folder that the configuration names."""


def data_root(setting: str | None) -> Path | None:
    """The folder with the official splits: `setting`, else ALFWORLD_DATA; None without games.

    Raises NoGames if `setting` contains no split.
    """
    named = setting or os.environ.get("ALFWORLD_DATA")
    if not named:
        return None
    root = Path(os.path.expandvars(named)).expanduser()
    for candidate in (root, root / "json_2.1.1"):
        if any((candidate / split).is_dir() for split in SPLITS):
            return candidate
    if setting:
        raise NoGames(f"{root} has none of the folders {', '.join(SPLITS)} (nor json_2.1.1/)")
    return None


def game_roots(root: Path | None) -> list[Path]:
    """The real folders of the official games: the root and its splits, which may be links."""
    return [] if root is None else [real_path(path) for path in (root, *(root / s for s in SPLITS))]


def existing_game(path: str, root: Path | None, allowed: Sequence[Path]) -> Path | None:
    """The game file at a path, which may be relative to `root`; None if it does not exist or is
    outside `allowed`."""
    for base in (Path(), *([root] if root else [])):
        real = real_path(base / path)
        if is_under(real, allowed) and real.is_file():
            return real
    return None


def official_tasks(
    root: Path, split: str, task_types: Sequence[str], limit: int | None
) -> list[Task]:
    """Solvable games of a split, sorted by path, without games that need slicing or moving."""
    known = _solvable(str(root / split))
    tasks = [
        Task(game_file=path, task_type=kind, split=split)
        for path, kind in known
        if kind in task_types
    ]
    if not tasks:
        raise NoGames(f"no solvable game of {', '.join(task_types)} in {root / split}")
    return tasks[:limit]


@lru_cache(maxsize=8)
def _solvable(folder: str) -> tuple[tuple[str, str], ...]:
    return tuple(_walk(Path(folder)))


def _walk(folder: Path) -> Iterator[tuple[str, str]]:
    for game_file in sorted(folder.rglob(GAME_FILE)):
        path = str(game_file)
        if "movable" in path or "Sliced" in path:
            continue
        kind = _task_type(game_file)
        if kind in TASK_TYPES and json.loads(game_file.read_text()).get("solvable"):
            yield path, kind


def _task_type(game_file: Path) -> str:
    """The task type in the official folder's name, else in `traj_data.json`."""
    named = game_file.parent.parent.name.partition("-")[0]
    if named in TASK_TYPES:
        return named
    trajectory = game_file.with_name("traj_data.json")
    return str(json.loads(trajectory.read_text())["task_type"]) if trajectory.exists() else ""


def generated_tasks(root: Path, split: str, task_types: Sequence[str], count: int) -> list[Task]:
    """`count` generated games, cycling through the task types. Missing games are made.

    Raises MissingExtra, GenerationFailed.
    """
    tasks = []
    for number in range(count):
        seed, position = divmod(number, len(task_types))
        kind = task_types[position]
        path = game_folder(root, split, kind, seed) / GAME_FILE
        tasks.append(Task(game_file=str(path), task_type=kind, split=split, seed=seed))
    _make([task for task in tasks if not os.path.exists(task["game_file"])])
    return tasks


def game_folder(root: Path, split: str, task_type: str, seed: int) -> Path:
    """The folder of a generated game."""
    return root / GENERATOR_VERSION / split / task_type / f"{seed:06d}"


def _make(tasks: Sequence[Task]) -> None:
    """Generate games in a child process, so that this process never loads the engine."""
    if not tasks:
        return
    ensure("alfworld", "alfworld")
    _log.info("generating %d ALFWorld games, about 0.5 s each", len(tasks))
    process = run_python(
        "agentsgym.envs.alfworld", input=json.dumps(tasks), env=python_environment()
    )
    if process.returncode != 0:
        raise GenerationFailed(f"the generator failed:\n{process.stderr[-2000:]}")
