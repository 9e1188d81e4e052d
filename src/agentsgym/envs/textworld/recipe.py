"""Kinds of TextWorld games and the `tw-make` arguments that make one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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


def recipe(kind: str, given: Mapping[str, int | None]) -> Recipe:
    """The recipe with the given sizes, and the kind's defaults for the others.

    Raises ValueError with the name of a setting that the kind does not have.
    """
    defaults = SIZES[kind]
    for name, value in given.items():
        if value is not None and name not in defaults:
            allowed = ", ".join(defaults) or "no sizes"
            raise ValueError(f"{name!r} is not a setting of {kind} games, which have {allowed}")
    sizes = {name: given.get(name) or default for name, default in defaults.items()}
    if kind == "cooking" and sizes["rooms"] not in COOKING_ROOMS:
        raise ValueError(f"'rooms' of cooking games must be one of {COOKING_ROOMS}")
    return Recipe(kind, tuple(sizes.items()))
