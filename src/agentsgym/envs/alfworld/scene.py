"""The scene of a generated ALFWorld game: its furniture and the objects in it.

All choices come from the tables and floor plans of the `alfworld` package and from one
`random.Random`; sets are sorted before a random draw.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

from agentsgym.envs.extras import require

MAX_PER_CLASS = 4
MAX_RECEPTACLES = 20
MAX_DISTRACTORS = 10
_MANY = {"CounterTop": 3, "StoveBurner": 4, "SideTable": 2, "Sofa": 2, "TowelHolder": 2}
_LAMP_STANDS = ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable", "DiningTable", "TVStand")


@dataclass(frozen=True, slots=True)
class Thing:
    """A receptacle or an object: its class and its PDDL name."""

    kind: str
    name: str


@dataclass(slots=True)
class Scene:
    """Receptacles, and for each object the receptacle that contains it."""

    floor_plan: int
    receptacles: list[Thing]
    places: dict[Thing, Thing] = field(default_factory=dict)

    @property
    def kinds(self) -> list[str]:
        """Classes of receptacles, sorted."""
        return sorted({receptacle.kind for receptacle in self.receptacles})


@cache
def tables() -> Any:
    """The package's `alfworld.gen.constants`. Raises MissingExtra if it is not installed."""
    return require("alfworld.gen.constants", "alfworld")


def holds(receptacle_kind: str) -> frozenset[str]:
    """Classes of objects that a class of receptacles can hold."""
    return frozenset(tables().VAL_RECEPTACLE_OBJECTS.get(receptacle_kind, ()))


@cache
def _layout(floor_plan: int, what: str) -> Any:
    text = files("alfworld").joinpath(f"gen/layouts/FloorPlan{floor_plan}-{what}.json").read_text()
    return json.loads(text)


def object_kinds(floor_plan: int) -> frozenset[str]:
    """Classes that occur in a floor plan."""
    return frozenset(_layout(floor_plan, "objects"))


def furnish(floor_plan: int, rng: Random) -> Scene:
    """A scene with a floor plan's receptacles, at most MAX_RECEPTACLES of them.

    Openable receptacles keep their position in the floor plan. For the others the floor plan names
    only the class, so their number and position are drawn.
    """
    constants = tables()
    static = set(constants.RECEPTACLES) - set(constants.MOVABLE_RECEPTACLES)
    known: dict[str, list[str]] = {}
    for object_id in sorted(_layout(floor_plan, "openable")):
        kind = object_id.split("|")[-1] if object_id.count("|") > 3 else object_id.split("|")[0]
        known.setdefault(kind, []).append(object_id)
    receptacles: list[Thing] = []
    for kind in sorted(static & object_kinds(floor_plan) & set(constants.VAL_RECEPTACLE_OBJECTS)):
        ids = known.get(kind) or _random_ids(kind, rng)
        chosen = sorted(rng.sample(ids, min(len(ids), MAX_PER_CLASS)))
        receptacles.extend(Thing(kind, pddl_name(object_id)) for object_id in chosen)
    return Scene(floor_plan, _thinned(receptacles, rng))


def _random_ids(kind: str, rng: Random) -> list[str]:
    ids = [_object_id(kind, rng) for _ in range(rng.randint(1, _MANY.get(kind, 1)))]
    whole = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}
    return [whole[kind] + i.removeprefix(kind) + f"|{kind}" for i in ids] if kind in whole else ids


def _object_id(kind: str, rng: Random) -> str:
    x, y, z = rng.uniform(-4, 4), rng.uniform(0, 2), rng.uniform(-4, 4)
    return f"{kind}|{x:+06.2f}|{y:+06.2f}|{z:+06.2f}"


def _thinned(receptacles: Sequence[Thing], rng: Random) -> list[Thing]:
    """At most MAX_RECEPTACLES, keeping one of each class."""
    thinned = list(receptacles)
    while len(thinned) > MAX_RECEPTACLES:
        spare = [r for r in thinned if sum(other.kind == r.kind for other in thinned) > 1]
        if not spare:
            break
        thinned.remove(rng.choice(spare))
    return thinned


def pddl_name(object_id: str) -> str:
    """A simulator's object id in the PDDL form that the engine's demangler expects."""
    name = object_id
    for character, word in (
        ("|", "_bar_"), ("-", "_minus_"), ("+", "_plus_"), (".", "_dot_"), (",", "_comma_"),
    ):  # fmt: skip
        name = name.replace(character, word)
    return name


def put(scene: Scene, kind: str, rng: Random, *, avoid: str = "") -> bool:
    """Place one object of a class; False if no receptacle other than `avoid` can hold it."""
    stands = [r for r in scene.receptacles if r.kind != avoid and kind in holds(r.kind)]
    if kind in tables().VAL_ACTION_OBJECTS["Toggleable"]:
        closed = tables().OPENABLE_CLASS_SET
        stands = [r for r in scene.receptacles if r.kind in _LAMP_STANDS and r.kind not in closed]
    if not stands:
        return False
    scene.places[Thing(kind, pddl_name(_object_id(kind, rng)))] = rng.choice(stands)
    return True


def clutter(scene: Scene, without: set[str], rng: Random) -> None:
    """Add up to MAX_DISTRACTORS objects of classes that are not in `without`."""
    kinds = sorted(k for k in _portable(scene) if k not in without)
    for kind in rng.sample(kinds, min(len(kinds), rng.randint(5, 8))):
        for _ in range(rng.choice((1, 1, 2))):
            if len(scene.places) < MAX_DISTRACTORS + len(without):
                put(scene, kind, rng)


def _portable(scene: Scene) -> Iterator[str]:
    present = object_kinds(scene.floor_plan)
    for kind in sorted(set().union(*(holds(r) for r in scene.kinds))):
        if kind in present:
            yield kind
