"""Games by sizes and seed, made when they are first needed and stored in a cache folder.

As a program (`python -m`) it runs the real `tw-make` for a JSON list of [arguments, game file] on
standard input. The generator's games depend on the hash seed, so it is started with
PYTHONHASHSEED=0.
"""

import hashlib
import importlib.metadata
import json
import logging
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agentsgym.child_process import python_environment, run_python
from agentsgym.envs.command_game import GenerationFailed, published
from agentsgym.envs.extras import ensure

EVAL_SHARE = 3
"""One seed out of this many is for evaluation."""
_MAX_ROUNDS = 4
_SECONDS, _SECONDS_EACH = 60.0, 30.0
"""Time limits for the generator's start and for one game: large games would never finish."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The sizes of a game; together with a seed they define it."""

    rooms: int
    objects: int
    quest_length: int

    @property
    def slug(self) -> str:
        """A folder name that is unique for this recipe."""
        return f"custom-rooms{self.rooms}-objects{self.objects}-quest_length{self.quest_length}"

    def arguments(self, seed: int) -> list[str]:
        """The arguments of `tw-make`, without the output path."""
        sizes = ["--world-size", self.rooms, "--nb-objects", self.objects]
        sizes += ["--quest-length", self.quest_length, "--seed", seed]
        return ["custom", *map(str, sizes)]


def game_path(root: Path, recipe: Recipe, seed: int) -> Path:
    """The file of a seed's game. Games depend on the generator's version."""
    return root / f"textworld-{_version()}" / recipe.slug / f"{seed:06d}" / "game.z8"


@cache
def _version() -> str:
    """Asking for it costs 9 ms, a tenth of the start of a game."""
    return importlib.metadata.version("textworld")


def ensure_games(root: Path, recipe: Recipe, seeds: Sequence[int]) -> list[Path]:
    """The games of these seeds; missing ones are made, about 2 s each.

    A child process makes them. Raises MissingExtra, GenerationFailed.
    """
    ensure("textworld", "textworld")
    paths = [game_path(root.absolute(), recipe, seed) for seed in seeds]
    missing = [
        (recipe.arguments(seed), str(path))
        for seed, path in zip(seeds, paths, strict=True)
        if not path.exists()
    ]
    if missing:
        _log.info("making %d TextWorld games, about 2 s each", len(missing))
        _run(missing)
    return paths


def _run(missing: Sequence[tuple[list[str], str]]) -> None:
    seconds = _SECONDS + _SECONDS_EACH * len(missing)
    try:
        with tempfile.TemporaryDirectory() as empty:
            # the generator would read a folder `textworld_data` in its working directory
            process = run_python(
                "agentsgym.envs.textworld.games",
                input=json.dumps(missing),
                env={**python_environment(), "PYTHONHASHSEED": "0"},
                cwd=empty,
                timeout=seconds,
            )
    except subprocess.TimeoutExpired:
        raise GenerationFailed(
            f"tw-make took more than {seconds:g} seconds; choose smaller games"
        ) from None
    if process.returncode != 0:
        raise GenerationFailed(f"tw-make failed:\n{(process.stdout + process.stderr)[-2000:]}")


def details(game_file: Path) -> Any:
    """The generator's description of a game, stored next to the game."""
    return json.loads(game_file.with_suffix(".json").read_text())


def fingerprint(game_file: Path) -> str:
    """A text that is equal for games with the same world, quests and objective."""
    game = details(game_file)
    identity = json.dumps([game["world"], game["quests"], game["objective"]], sort_keys=True)
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()


def distinct_seeds(root: Path, recipe: Recipe, count: int, *, held_out: bool) -> list[int]:
    """The first training (or evaluation) seeds whose games differ from those of all smaller seeds.

    There are fewer than `count` if the recipe does not have that many different games.
    """
    block = -(-count * EVAL_SHARE // (1 if held_out else EVAL_SHARE - 1))
    earlier: set[str] = set()
    chosen: list[int] = []
    for number in range(_MAX_ROUNDS):
        seeds = range(number * block, (number + 1) * block)
        for seed, path in zip(seeds, ensure_games(root, recipe, seeds), strict=True):
            mark = fingerprint(path)
            if mark not in earlier and (seed % EVAL_SHARE == EVAL_SHARE - 1) == held_out:
                chosen.append(seed)
            earlier.add(mark)
        if len(chosen) >= count:
            return chosen[:count]
    _log.warning("only %d of %d %s games differ", len(chosen), count, recipe.slug)
    return chosen


# -- the program that makes games ------------------------------------------------------------------


def tw_make() -> str:
    """The path of the script that the package installs. Raises LookupError if it is missing."""
    for file in importlib.metadata.files("textworld") or ():
        if file.name == "tw-make":
            return str(file.locate())
    raise LookupError("the installed textworld has no tw-make")


def make(arguments: Sequence[str], game_file: Path) -> None:
    """Make one game; its folder appears only when it is complete."""
    with published(game_file.parent) as scratch:
        output = str(scratch / game_file.name)
        sys.argv = ["tw-make", *arguments, "--output", output, "--silent", "-f"]
        runpy.run_path(tw_make(), run_name="__main__")


def main() -> None:
    """Make every game that does not exist yet."""
    for arguments, game_file in json.load(sys.stdin):
        if not Path(game_file).exists():
            make(arguments, Path(game_file))


if __name__ == "__main__":
    main()
