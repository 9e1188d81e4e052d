"""Upper limits for the sizes of TextArena's games. Above them, making a puzzle takes minutes or
gigabytes, or never ends."""

from collections.abc import Mapping
from typing import Any

from agentsgym.types.text import short_repr

NUMBERS: Mapping[str, int] = {
    "max_turns": 10_000,
    "num_turns": 10_000,
    "N": 1_000,
    "num_hands": 1_000,
    "num_words": 40,
    "size": 16,
    "num_holes": 256,
    "code_length": 32,
    "num_numbers": 100,
    "rows": 32,
    "cols": 32,
    "num_mines": 1_000,
    "num_boxes": 5,
    "num_cups": 50,
    "steps": 1_000,
    "num_disks": 12,
    "min_number": 10**9,
    "max_number": 10**9,
    "target": 10**9,
}
ITEMS: Mapping[str, int] = {"buttons": 100, "numbers": 12, "equation": 100}
WIDEST_ROOM = 10


def size_problem(options: Mapping[str, Any]) -> str | None:
    """The first problem with the sizes in a game's constructor arguments, or None."""
    for name, value in options.items():
        if value is None:
            continue
        most = NUMBERS.get(name)
        if most is not None and (not isinstance(value, int) or abs(value) > most):
            return f"{name!r} must be a whole number of at most {most}, got {short_repr(value)}"
        longest = ITEMS.get(name)
        if longest is not None and not 0 < _length(value) <= longest:
            return f"{name!r} must have at most {longest} entries, got {short_repr(value)}"
    return _room_problem(options) or _mines_problem(options)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | tuple | str) else 0


def _room_problem(options: Mapping[str, Any]) -> str | None:
    room = options.get("dim_room", (1, 1))
    sides = room if isinstance(room, list | tuple) else ()
    if len(sides) == 2 and all(isinstance(s, int) and s <= WIDEST_ROOM for s in sides):
        return None
    return f"'dim_room' must be two whole numbers of at most {WIDEST_ROOM}, got {short_repr(room)}"


def _mines_problem(options: Mapping[str, Any]) -> str | None:
    """The first cell and its neighbors must be free of mines; the game draws until they are."""
    if "num_mines" not in options:
        return None
    most = int(options["rows"]) * int(options["cols"]) - 9
    return f"'num_mines' must be at most {most}" if options["num_mines"] > most else None
