"""Which rollouts a page in a file contains: all of a small run, a sample of a large one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agentsgym.report.viewer.rollout_set import RolloutSet, groups
from agentsgym.runs.files import RolloutLine

_MOST_GENERATIONS = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Chosen:
    """A set's rollouts on the page. `total` are those that it has; `problem` says what could not
    be read; `everything` has the lines that were read."""

    rollouts: RolloutSet
    lines: list[RolloutLine]
    everything: list[RolloutLine]
    problem: str | None

    @property
    def total(self) -> int:
        """Number of rollouts in the set."""
        return len(self.everything)


def choose_sets(sets: Sequence[RolloutSet], everything: bool) -> list[RolloutSet]:
    """The evaluations, and generations that are spread evenly over training, the first and the
    last among them."""
    training = [one for one in sets if one.phase == "train"]
    kept = training if everything else spread(training, _MOST_GENERATIONS)
    return [one for one in sets if one.phase != "train" or one in kept]


def choose_rollouts(
    read: Mapping[RolloutSet, tuple[list[RolloutLine], str | None]], most: int | None
) -> list[Chosen]:
    """At most about `most` rollouts (None: all) in whole groups, shared evenly by the sets."""
    budgets = share([len(lines) for lines, _ in read.values()], most)
    return [
        Chosen(one, _whole_groups(lines, budget), lines, problem)
        for (one, (lines, problem)), budget in zip(read.items(), budgets, strict=True)
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


def _whole_groups(lines: list[RolloutLine], budget: int) -> list[RolloutLine]:
    """Groups spread evenly over the set; in two sets of equal groups, the same ones."""
    found = list(groups(lines))
    if len(lines) <= budget or not found:
        return lines
    wanted = max(1, budget * len(found) // len(lines))
    return [line for members in spread(found, wanted) for line in members]


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most `count` of the values, evenly spaced, with the first and the last."""
    if len(values) <= count:
        return list(values)
    if count == 1:
        return [values[0]]
    places = {round(n * (len(values) - 1) / (count - 1)) for n in range(count)}
    return [values[place] for place in sorted(places)]
