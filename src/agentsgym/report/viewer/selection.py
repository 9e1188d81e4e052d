"""Which rollouts a page in a file contains: all of a small run, a sample of a large one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agentsgym.report.viewer.rollout_set import Contents, RolloutSet, groups
from agentsgym.runs.files import StoredRollout

_MOST_GENERATIONS = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Chosen:
    """The `lines` of a set that the page contains, and everything that the set contains."""

    rollouts: RolloutSet
    lines: list[StoredRollout]
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
    """At most about `most` rollouts (None: all) in whole groups: of the evaluations, which are
    compared with each other, two fifths, and the rest of training."""
    sizes = {one: len(contents.lines) for one, contents in read.items()}
    budgets = sizes if most is None or sum(sizes.values()) <= most else _budgets(sizes, most)
    return [
        Chosen(one, _whole_groups(contents, budgets[one]), contents)
        for one, contents in read.items()
    ]


def _budgets(sizes: Mapping[RolloutSet, int], most: int) -> dict[RolloutSet, int]:
    training = {one: size for one, size in sizes.items() if one.phase == "train"}
    others = {one: size for one, size in sizes.items() if one.phase != "train"}
    wanted = max(most * 2 // 5, most - sum(training.values()))
    level = share(list(others.values()), wanted)
    kept = {one: min(size, level) for one, size in others.items()}
    level = share(list(training.values()), most - sum(kept.values()))
    return kept | {one: min(size, level) for one, size in training.items()}


def share(sizes: Sequence[int], most: int) -> int:
    """The largest number such that at most `most` are taken if each set gives as many or all. So
    sets of equal tasks give the same tasks."""
    left = most
    for place, size in enumerate(ordered := sorted(sizes)):
        level = left // (len(ordered) - place)
        if level < size:
            return level
        left -= size
    return max(sizes, default=0)


def _whole_groups(contents: Contents, budget: int) -> list[StoredRollout]:
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


def _any_recorded(members: Sequence[StoredRollout], contents: Contents) -> bool:
    return any(line.rollout.session_id in contents.records for line in members)


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most `count` of the values, evenly spaced, with the first and the last."""
    if len(values) <= count:
        return list(values)
    if count <= 1:
        return list(values[:count])
    places = {round(n * (len(values) - 1) / (count - 1)) for n in range(count)}
    return [values[place] for place in sorted(places)]
