"""Generates valid ALFWorld games of all six task types from a seed, without any download.

A game folder has the same files as the official data: `game.tw-pddl`, `traj_data.json` and
`initial_state.pddl`. The real planner must solve every game, and its plan is played to the win
before the folder gets its final name, so an existing folder is always complete.

As a program (`python -m`) it makes the games of the tasks on standard input: a JSON list of tasks
with `game_file`, `task_type`, `split` and `seed`.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

from agentsgym.envs.alfworld.engine import solve
from agentsgym.envs.alfworld.scene import (
    Scene,
    Thing,
    clutter,
    furnish,
    holds,
    object_kinds,
    put,
    tables,
)
from agentsgym.envs.command_game import GenerationFailed, published
from agentsgym.envs.extras import require

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
TASK_TYPES: tuple[str, ...] = get_args(TaskType)
"""The names of the task types, as in the official data."""
ATTEMPTS = 200
GAME_FILE = "game.tw-pddl"
_NEEDS = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal: classes of the object, the receptacle and the lamp (or "")."""

    task_type: str
    target: str
    parent: str = ""
    toggle: str = ""


def generate(folder: Path, task_type: str, split: str, seed: int) -> Path:
    """Make the game of (task type, split, seed) in `folder` if it is missing; return its file.

    `valid_unseen` uses the floor plans that the official split holds out, other splits the official
    training floor plans. Raises MissingExtra, KeyError for an unknown task type, GenerationFailed.
    """
    final = folder / GAME_FILE
    if final.exists():
        return final
    if task_type not in TASK_TYPES:
        raise KeyError(task_type)
    rng = Random(f"{task_type}/{split}/{seed}")
    with published(folder) as scratch:
        for _ in range(ATTEMPTS):
            game = _draw(task_type, split, rng)
            if game is not None and _write(scratch, *game, f"{task_type}_{seed}", rng):
                return final
        raise GenerationFailed(f"no valid {task_type} game from seed {seed} in {ATTEMPTS} attempts")


def _draw(task_type: str, split: str, rng: Random) -> tuple[Scene, Goal] | None:
    """A furnished scene and a goal for it, or None if the draw has no valid goal."""
    constants = tables()
    room_kind = rng.choice(sorted(constants.GOALS_VALID[task_type]))
    held_out = split == "valid_unseen"
    plans = constants.TEST_SCENE_NUMBERS if held_out else constants.TRAIN_SCENE_NUMBERS
    plan = rng.choice([n for n in plans if n in constants.SCENE_TYPE[room_kind]])
    scene = furnish(plan, rng)
    goals = sorted(_goals(task_type, scene), key=repr)
    if not goals:
        return None
    goal = rng.choice(goals)
    count = rng.randint(2, 3) if task_type == "pick_two_obj_and_place" else rng.randint(1, 2)
    if not all(put(scene, goal.target, rng, avoid=goal.parent) for _ in range(count)):
        return None
    if goal.toggle and not put(scene, goal.toggle, rng):
        return None
    clutter(scene, {goal.target, goal.toggle}, rng)
    return scene, goal


def _goals(task_type: str, scene: Scene) -> Iterator[Goal]:
    constants = tables()
    present = object_kinds(scene.floor_plan)
    lamps = set(constants.VAL_ACTION_OBJECTS["Toggleable"])
    if task_type == "look_at_obj_in_light":
        for lamp in sorted(lamps & present):
            for kind in sorted(set().union(*map(holds, scene.kinds)) & present):
                yield Goal(task_type, kind, toggle=lamp)
        return
    affordance, station = _NEEDS.get(task_type, ("", ""))
    if station and station not in scene.kinds:
        return
    able = set(constants.VAL_ACTION_OBJECTS[affordance]) if affordance else None
    for parent in scene.kinds:
        for kind in sorted(holds(parent) & present):
            if able is None or kind in able:
                yield Goal(task_type, kind, parent)


def _write(folder: Path, scene: Scene, goal: Goal, name: str, rng: Random) -> bool:
    """Write the three files; False if the planner finds no plan that wins."""
    problem = problem_text(scene, goal, name)
    data = {
        "pddl_domain": _shipped("alfred.pddl"),
        "grammar": _shipped("alfred.twl2").replace("UNKNOWN GOAL", _described(goal, rng)),
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": None,
    }
    game_file = folder / GAME_FILE
    game_file.write_text(json.dumps(data))
    plan = solve(str(game_file))
    if not plan:
        return False
    game_file.write_text(json.dumps({**data, "walkthrough": list(plan)}))
    (folder / "initial_state.pddl").write_text(problem)
    (folder / "traj_data.json").write_text(json.dumps(_trajectory(scene, goal, name)))
    return True


def _shipped(name: str) -> str:
    return files("alfworld").joinpath(f"data/{name}").read_text()


def _library(task_type: str) -> Mapping[str, Any]:
    library: Mapping[str, Any] = require("alfworld.gen.goal_library", "alfworld").gdict[task_type]
    return library


def _described(goal: Goal, rng: Random) -> str:
    template: str = rng.choice(_library(goal.task_type)["templates"])
    return template.format(
        obj=goal.target.lower(), recep=goal.parent.lower(), toggle=goal.toggle.lower()
    )


def _trajectory(scene: Scene, goal: Goal, name: str) -> dict[str, Any]:
    return {
        "task_id": name,
        "task_type": goal.task_type,
        "scene": {"floor_plan": f"FloorPlan{scene.floor_plan}", "scene_num": scene.floor_plan},
        "pddl_params": {
            "object_target": goal.target,
            "parent_target": goal.parent,
            "toggle_target": goal.toggle,
            "mrecep_target": "",
            "object_sliced": False,
        },
    }


def problem_text(scene: Scene, goal: Goal, name: str) -> str:
    """The PDDL problem. The library's goal text closes the `(define`."""
    locations = {r: f"loc_bar_{i}_bar_0_bar_0_bar_30" for i, r in enumerate(scene.receptacles)}
    start = f"loc_bar_{len(locations)}_bar_0_bar_0_bar_30"
    text: str = _library(goal.task_type)["pddl"]
    names = {"obj": goal.target, "recep": goal.parent, "toggle": goal.toggle, "mrecep": ""}
    return "\n".join(
        [
            f"(define (problem {name})",
            "(:domain alfred)",
            "(:objects",
            *_objects(scene, [*locations.values(), start]),
            ")",
            "(:init",
            "(= (total-cost) 0)",
            f"(atLocation agent1 {start})",
            *_facts(scene, locations),
            ")",
            text.format(**names).replace(" # ", " - "),
        ]
    )


def _objects(scene: Scene, locations: list[str]) -> Iterator[str]:
    yield "agent1 - agent"
    yield from (f"{location} - location" for location in locations)
    yield from (f"{receptacle.name} - receptacle" for receptacle in scene.receptacles)
    yield from (f"{thing.name} - object" for thing in scene.places)
    yield from (f"{kind}Type - rtype" for kind in _receptacle_kinds())
    yield from (f"{kind}Type - otype" for kind in _object_kinds())


def _receptacle_kinds() -> list[str]:
    constants = tables()
    return sorted(set(constants.VAL_RECEPTACLE_OBJECTS) - set(constants.MOVABLE_RECEPTACLES))


def _object_kinds() -> list[str]:
    constants = tables()
    held = set().union(*constants.VAL_RECEPTACLE_OBJECTS.values())
    lamps = set(constants.VAL_ACTION_OBJECTS["Toggleable"])
    return sorted((held | lamps) - set(_receptacle_kinds()))


def _facts(scene: Scene, locations: Mapping[Thing, str]) -> Iterator[str]:
    constants = tables()
    for receptacle, location in locations.items():
        yield f"(receptacleType {receptacle.name} {receptacle.kind}Type)"
        yield f"(receptacleAtLocation {receptacle.name} {location})"
        if receptacle.kind in constants.OPENABLE_CLASS_SET:
            yield f"(openable {receptacle.name})"
    for kind in scene.kinds:
        for held in sorted(holds(kind) & set(_object_kinds())):
            yield f"(canContain {kind}Type {held}Type)"
    for thing, receptacle in scene.places.items():
        yield f"(objectType {thing.name} {thing.kind}Type)"
        yield f"(inReceptacle {thing.name} {receptacle.name})"
        yield f"(objectAtLocation {thing.name} {locations[receptacle]})"
        yield from _abilities(thing)


def _abilities(thing: Thing) -> Iterator[str]:
    constants = tables()
    for ability, kinds in sorted(constants.VAL_ACTION_OBJECTS.items()):
        if thing.kind in kinds:
            yield f"({ability.lower()} {thing.name})"
    if thing.kind not in constants.VAL_ACTION_OBJECTS["Toggleable"]:
        yield f"(pickupable {thing.name})"
    if thing.kind in constants.MOVABLE_RECEPTACLES_SET:
        yield f"(isReceptacleObject {thing.name})"


def main() -> None:
    """Make every game that does not exist yet."""
    for task in json.load(sys.stdin):
        folder = Path(task["game_file"]).parent
        generate(folder, task["task_type"], task["split"], task["seed"])


if __name__ == "__main__":
    main()
