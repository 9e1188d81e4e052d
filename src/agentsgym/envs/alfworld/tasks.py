"""The six task types and the splits, with the names and numbers of the official data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

TASK_TYPES: dict[str, int] = {
    "pick_and_place_simple": 1,
    "look_at_obj_in_light": 2,
    "pick_clean_then_place_in_recep": 3,
    "pick_heat_then_place_in_recep": 4,
    "pick_cool_then_place_in_recep": 5,
    "pick_two_obj_and_place": 6,
}
SPLITS = ("train", "valid_seen", "valid_unseen")


class Task(TypedDict):
    """`task_data` of ALFWorld. Only `game_file` is required.

    `seed` marks a generated game: if its file is missing, the same game is made again from `seed`,
    `task_type` and `split`.
    """

    game_file: str
    task_type: NotRequired[str]
    split: NotRequired[str]
    seed: NotRequired[int]


LAST_SEED = 2**31 - 1


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
