"""The six task types and the splits, named and numbered as the official data has them."""

from typing import NotRequired, TypedDict

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
    """`task_data` of ALFWorld. Only `game_file` is needed.

    `seed` marks a generated game: with it, `task_type` and `split` a file that is gone is made
    again, the same.
    """

    game_file: str
    task_type: NotRequired[str]
    split: NotRequired[str]
    seed: NotRequired[int]
