"""Which rollouts a page in a file contains: all of a small run, a sample of a large one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agentsgym.report.viewer.rollout_set import Contents, RolloutSet, groups
from agentsgym.runs.files import RolloutLine

_MOST_GENERATIONS = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Chosen:
    """The `lines` of a set that the page contains, and everything that the set contains."""

    rollouts: RolloutSet
    lines: list[RolloutLine]
    contents: Contents

    @property
    def total(self) -> int:
        """Number of rollouts in the set."""
        return len(self.contents.lines)


def choose_sets(sets: Sequence[RolloutSet], everything: bool) -> list[RolloutSet]:
    """The evaluations, and generations that are spread evenly over training, the first and the
    last among them."""
    training = [one for one in sets if one.phase == "train"]
    kept = training if everything else spread(training, _MOST_GENERATIONS)
    return [one for one in sets if one.phase != "train" or one in kept]


def choose_rollouts(read: Mapping[RolloutSet, Contents], most: int | None) -> list[Chosen]:
    """At most about `most` rollouts (None: all) in whole groups, shared evenly by the sets."""
    budgets = share([len(contents.lines) for contents in read.values()], most)
    return [
        Chosen(one, _whole_groups(contents, budget), contents)
        for (one, contents), budget in zip(read.items(), budgets, strict=True)
    ]


def share(sizes: Sequence[int], most: int | None) -> list[int]:
    """How many each set may have so that all have equally many, or all that they have."""
    if most is None or sum(sizes) <= most:
        return list(sizes)
    budgets = [0] * len(sizes)
    left, waiting = most, sorted(range(len(sizes)), key=lambda n: sizes[n])
    for place, number in enumerate(waiting):
        budgets[number] = min(sizes[number], left // (len(waiting) - place))
        left -= budgets[number]
    return budgets


def _whole_groups(contents: Contents, budget: int) -> list[RolloutLine]:
    """Groups spread evenly over the set, those with the trainer's numbers first; in two sets of
    equal groups, the same ones."""
    found = list(groups(contents.lines))
    if len(contents.lines) <= budget or not found:
        return contents.lines
    wanted = max(1, budget * len(found) // len(contents.lines))
    recorded = [place for place, members in enumerate(found) if _any_recorded(members, contents)]
    others = [place for place in range(len(found)) if place not in recorded]
    places = spread(recorded, wanted)
    places += spread(others, wanted - len(places))
    return [line for place in sorted(places) for line in found[place]]


def _any_recorded(members: Sequence[RolloutLine], contents: Contents) -> bool:
    return any(line.rollout.session_id in contents.records for line in members)


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most `count` of the values, evenly spaced, with the first and the last."""
    if len(values) <= count:
        return list(values)
    if count <= 1:
        return list(values[:count])
    places = {round(n * (len(values) - 1) / (count - 1)) for n in range(count)}
    return [values[place] for place in sorted(places)]
