"""Two sets of rollouts on the same tasks: the paired difference with its interval."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from agentsgym.evaluation import Comparison, compare
from agentsgym.evaluation.comparison import Difference
from agentsgym.report.viewer.index import number, task_key
from agentsgym.report.viewer.selection import Chosen
from agentsgym.runs.files import StoredRollout
from agentsgym.types import Rollout

Json = dict[str, Any]

_MOST_SETS = 8


def comparison(left: Sequence[StoredRollout], right: Sequence[StoredRollout]) -> Json | None:
    """The differences right minus left over all pairs; None if there are no pairs, or if the sets
    number their tasks differently."""
    waiting: dict[str, list[Rollout]] = {}
    for line in right:
        waiting.setdefault(task_key(line.rollout), []).append(line.rollout)
    pairs = [
        (line.rollout, others.pop(0))
        for line in left
        if (others := waiting.get(task_key(line.rollout)))
    ]
    if not pairs:
        return None
    try:
        return _data(compare([second for _, second in pairs], [first for first, _ in pairs]))
    except ValueError:
        return None


def comparisons(sources: Sequence[Sequence[Chosen]]) -> list[Json]:
    """The comparison of every two evaluations of the page; `left` and `right` name them as
    [number of the source, id]."""
    sets = [
        (number, one)
        for number, chosen in enumerate(sources)
        for one in chosen
        if one.rollouts.phase != "train"
    ]
    found = []
    for (first, left), (second, right) in combinations(sets[:_MOST_SETS], 2):
        told = comparison(left.contents.lines, right.contents.lines)
        if told is not None:
            names = {"left": [first, left.rollouts.id], "right": [second, right.rollouts.id]}
            found.append(names | told)
    return found


def _data(found: Comparison) -> Json:
    return {
        "pairs": found.pairs,
        "clusters": found.clusters,
        "reward": _difference(found.reward),
        "win_rate": None if found.win_rate is None else _difference(found.win_rate),
    }


def _difference(found: Difference) -> Json:
    known = all(map(math.isfinite, found.interval))
    return {
        "difference": number(found.difference),
        "interval": [number(end) for end in found.interval] if known else None,
        "shown": found.shown,
    }
