"""ALFWorld: household tasks in text, played by the real engine, and its expert."""

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from agentsgym.child_process import python_environment, run_python
from agentsgym.envs.alfworld.engine import NOTHING, HouseholdGame, solve
from agentsgym.envs.alfworld.generator import GAME_FILE, TASK_TYPES, TaskType, generate
from agentsgym.envs.command_game import CommandGameEnv, GenerationFailed
from agentsgym.envs.extras import ensure
from agentsgym.envs.settings import OptionalPath, Tasks, cache_folder, task_directories
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


def _generated_again(task_data: Mapping[str, Any], cache: Path) -> Path:
    """Raises ValueError for a value unknown to the generator: all three are part of a path."""
    kind, split, seed = task_data["task_type"], task_data["split"], task_data["seed"]
    for key, value, allowed in (("task_type", kind, TASK_TYPES), ("split", split, SPLITS)):
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


# -- the environment -------------------------------------------------------------------------------


GENERATED_TRAIN = 36
GENERATED_EVAL = 12


class ALFWorldEnv(CommandGameEnv):
    """Find, clean, heat, cool and place things in a household, by text commands.

    `task_data` is `{"game_file": path}` of a `game.tw-pddl` in the cache or the official data (with
    `make(…, trust=True)` anywhere). The winning step earns 1.0. `dense_reward` is added for each
    command by which the planner's remaining plan gets shorter, and subtracted if it gets longer. A
    command that is not admissible gets the answer "Nothing happens." and counts as malformed.

    Raises MissingExtra if the extra `alfworld` is not installed.
    """

    class Settings(CommandGameEnv.Settings):
        """The settings of ALFWorld."""

        max_steps_per_episode: int = 50
        data: OptionalPath = Field(
            None, description="folder of the official data; None: ALFWORLD_DATA if it has games"
        )
        cache_dir: OptionalPath = Field(
            None, description="folder for generated games; None: ~/.cache/agentsgym"
        )
        task_types: list[TaskType] | None = Field(
            None, min_length=1, description="names of task types; None: all"
        )
        eval_split: Literal["valid_seen", "valid_unseen"] = Field(
            "valid_unseen",
            description="which held-out games to evaluate on: in rooms known from training, or in "
            "new ones",
        )
        train_tasks: Tasks | None = Field(
            None, description=f"training games; None: all official ones or {GENERATED_TRAIN}"
        )
        eval_tasks: Tasks | None = Field(
            None, description=f"evaluation games; None: all official ones or {GENERATED_EVAL}"
        )
        dense_reward: float = Field(
            0.0,
            ge=0,
            description="reward per command by which the planner's plan becomes shorter",
        )

    config: Settings
    rules = "You are in a household. Do the task by giving one command per turn."
    refusal = NOTHING

    def _set_up(self) -> None:
        ensure("alfworld", "alfworld")
        ensure("fast_downward", "alfworld")
        if self.config.dense_reward:
            self.reward_range = (float("-inf"), float("inf"))

    # -- an episode -----------------------------------------------------------------------------

    def begin(self, task_data: Mapping[str, Any]) -> HouseholdGame:
        game = HouseholdGame(self.game_file(task_data))
        if self.config.dense_reward:
            game.plan_length = len(game.plan())
        return game

    def earned(self, game: HouseholdGame) -> tuple[float, dict[str, Any]]:
        """1.0 for the win, and what the planner's plan has become shorter."""
        if not self.config.dense_reward:
            return float(game.won), {}
        before, game.plan_length = game.plan_length, len(game.plan())
        progress = self.config.dense_reward * (before - game.plan_length)
        return float(game.won) + progress, {"plan_length": game.plan_length}

    def command(self, action: str, commands: Sequence[str]) -> str | None:
        """The command out of `commands` in an action (see `read_option`), without
        `explain_actions` only the command as it is, like the engine; None without one."""
        if self.config.explain_actions:
            return super().command(action, commands)
        return action.strip() if action.strip() in commands else None

    # -- tasks ----------------------------------------------------------------------------------

    def game_file(self, task_data: Mapping[str, Any]) -> str:
        """The path of a task's game, which may be named relative to the official data, whose splits
        may be links. A generated game that is missing is made again in the cache, even if the task
        names another folder.

        Raises ValueError if `game_file` is missing or invalid, PathRefused for a file outside the
        allowed directories, and FileNotFoundError if there is no such game.
        """
        name, root, cache = task_data.get("game_file"), data_root(self.config.data), self._cache()
        if not isinstance(name, str):
            raise ValueError(f"task_data needs a 'game_file' (a path), got {dict(task_data)!r}")
        official = [] if root is None else [root, *(root / split for split in SPLITS)]
        known = map(real_path, (cache, *official))
        allowed = [*task_directories(trusted=self.trusts_tasks), *known]
        for base in (Path(), *official[:1]):
            file = real_path(base / name)
            if is_under(file, allowed) and file.is_file():
                return str(file)
        if all(key in task_data for key in ("seed", "task_type", "split")):
            return str(_generated_again(task_data, cache))
        if root is None or Path(name).is_absolute():
            checked_path(name, allowed)
        raise FileNotFoundError(f"there is no game {name}")

    def _cache(self) -> Path:
        return cache_folder("alfworld", self.config.cache_dir)

    def _tasks(self, held_out: bool) -> Iterable[dict[str, Any]]:
        """Games of the split `train`, or of `eval_split`: the official ones if they are installed,
        else generated ones. None is on both sides."""
        config = self.config
        split, count, otherwise = "train", config.train_tasks, GENERATED_TRAIN
        if held_out:
            split, count, otherwise = config.eval_split, config.eval_tasks, GENERATED_EVAL
        kinds = config.task_types or TASK_TYPES
        root = data_root(config.data)
        if root is not None:
            return official_tasks(root, split, kinds, count)
        return generated_tasks(self._cache(), split, kinds, count or otherwise)

    # -- the expert -----------------------------------------------------------------------------

    def expert_plan(self, task_data: Mapping[str, Any]) -> tuple[str, ...]:
        """The planner's commands that win a task; empty if it finds none."""
        return _plan(self.game_file(task_data), "seed" in task_data)

    def plan_after(self, task_data: Mapping[str, Any], actions: Sequence[str]) -> tuple[str, ...]:
        """The planner's commands that win a task after these actions, which are replayed in this
        process."""
        if not actions:
            return self.expert_plan(task_data)
        game = HouseholdGame(self.game_file(task_data))
        for action in actions:
            command = self.command(action, game.commands)
            if command is not None:
                game.step(command)
        return game.plan()

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The expert's reward: 1.0 if its plan fits into the step limit, plus dense rewards."""
        steps = len(self.expert_plan(task_data))
        if not steps:
            return None
        limit = self.config.max_steps_per_episode
        dense: float = self.config.dense_reward
        return float(steps <= limit) + dense * float(min(steps, limit))


@lru_cache(maxsize=4096)
def _plan(game_file: str, generated: bool) -> tuple[str, ...]:
    """The plan stored with a generated game; for other games the planner computes it."""
    if generated:
        walkthrough = json.loads(Path(game_file).read_text()).get("walkthrough")
        if walkthrough:
            return tuple(walkthrough)
    return solve(game_file) or ()
