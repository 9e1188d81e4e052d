"""Games by kind, sizes and seed, made when they are first needed and stored in a cache folder."""

import hashlib
import importlib.metadata
import json
import logging
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agentsgym.child_process import python_environment, run_python
from agentsgym.envs.command_game import GenerationFailed
from agentsgym.envs.extras import ensure

Kind = Literal["custom", "simple", "cooking", "coin_collector", "treasure_hunter"]
SIZES: Mapping[str, Mapping[str, int]] = {
    "custom": {"rooms": 3, "objects": 6, "quest_length": 4},
    "simple": {},
    "cooking": {"rooms": 1, "ingredients": 1},
    "coin_collector": {"level": 5},
    "treasure_hunter": {"level": 5},
}
"""Each kind's settings with their defaults."""
COOKING_ROOMS = (1, 6, 9, 12)
EVAL_SHARE = 3
"""One seed out of this many is for evaluation."""
_MAX_ROUNDS = 4
_SECONDS, _SECONDS_EACH = 60.0, 30.0
"""Time limits for the generator's start and for one game: large games would never finish."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A kind of game and its sizes; together with a seed it defines a game."""

    kind: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def slug(self) -> str:
        """A folder name that is unique for this recipe."""
        return "-".join([self.kind, *(f"{name}{value}" for name, value in self.sizes)])

    def arguments(self, seed: int) -> list[str]:
        """The arguments of `tw-make`, without the output path."""
        sizes = dict(self.sizes)
        own: Sequence[Any]
        if self.kind == "custom":
            own = ["custom", "--world-size", sizes["rooms"], "--nb-objects", sizes["objects"],
                   "--quest-length", sizes["quest_length"]]  # fmt: skip
        elif self.kind == "simple":
            own = ["tw-simple", "--rewards", "dense", "--goal", "detailed"]
        elif self.kind == "cooking":
            own = ["tw-cooking", "--recipe", sizes["ingredients"], "--take", 1, "--go",
                   sizes["rooms"], "--open", "--cook", "--cut", "--recipe-seed", seed]  # fmt: skip
        else:
            own = [f"tw-{self.kind}", "--level", sizes["level"]]
        return [*map(str, own), "--seed", str(seed)]


def recipe(kind: str, chosen: Mapping[str, int | None]) -> Recipe:
    """The recipe with the chosen sizes, and the kind's defaults for the others.

    Raises ValueError with the name of a setting that the kind does not have.
    """
    defaults = SIZES[kind]
    for name, value in chosen.items():
        if value is not None and name not in defaults:
            allowed = ", ".join(defaults) or "no sizes"
            raise ValueError(f"{name!r} is not a setting of {kind} games, which have {allowed}")
    sizes = {name: chosen.get(name) or default for name, default in defaults.items()}
    if kind == "cooking" and sizes["rooms"] not in COOKING_ROOMS:
        raise ValueError(f"'rooms' of cooking games must be one of {COOKING_ROOMS}")
    return Recipe(kind, tuple(sizes.items()))


def game_path(root: Path, recipe: Recipe, seed: int) -> Path:
    """The file of a seed's game. Games depend on the generator's version."""
    version = importlib.metadata.version("textworld")
    return root / f"textworld-{version}" / recipe.slug / f"{seed:06d}" / "game.z8"


def ensure_games(root: Path, recipe: Recipe, seeds: Sequence[int]) -> list[Path]:
    """The games of these seeds; missing ones are made, about 2 s each.

    A child process makes them. Raises MissingExtra, GenerationFailed.
    """
    ensure("textworld", "textworld")
    paths = [game_path(root, recipe, seed) for seed in seeds]
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
                "agentsgym.envs.textworld",
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
