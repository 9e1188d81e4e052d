"""Compares two players that played the same tasks, pair by pair, and plans such a comparison."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from agentsgym.evaluation.evaluate import cluster_of
from agentsgym.evaluation.intervals import Interval, cluster_mean, spread_interval, t_quantile
from agentsgym.evaluation.metrics import mean, record, reported_wins
from agentsgym.types import Rollout


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both sides: the means of `first` and `second`, and their `difference` (first
    minus second) with its 95 % interval. The interval is two NaNs with fewer than two clusters."""

    first: float
    second: float
    difference: float
    interval: Interval

    @property
    def shown(self) -> bool:
        """Whether the interval lies on one side of zero."""
        low, high = self.interval
        return low > 0 or high < 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two players on the same tasks with the same noise.

    `pairs` counts the rollouts that neither side failed; `left_out` counts the others, on which no
    figure rests. `win_rate` is None if the environments report no wins. With several environments,
    `environments` has each one's own comparison, by class path.
    """

    pairs: int
    clusters: int
    left_out: int
    reward: Difference
    win_rate: Difference | None
    environments: Mapping[str, "Comparison"] = field(default_factory=dict)


Pair = tuple[Rollout, Rollout]


def compare(first: Sequence[Rollout], second: Sequence[Rollout]) -> Comparison:
    """Compare the rollouts of two players: `first[k]` and `second[k]` played the same task.

    The intervals are Student's, from the pairs' differences with whole clusters left out in turn
    (`cluster_mean`); so they hold for few tasks and for several rollouts per task. Raises
    ValueError if the rollouts were not played on the same tasks.
    """
    pairs = list(zip(first, second, strict=False))
    if len(first) != len(second) or any(_request(a) != _request(b) for a, b in pairs):
        raise ValueError(
            "the two sides did not play the same tasks in the same order and cannot be compared"
        )
    return _compare(pairs)


def _request(rollout: Rollout) -> Hashable:
    """What a rollout was asked to play, apart from the noise."""
    return cluster_of(rollout), rollout.group, rollout.index


def _compare(pairs: Sequence[Pair]) -> Comparison:
    live = [(a, b) for a, b in pairs if not a.failed and not b.failed]
    keys = [cluster_of(a) for a, _ in live]
    paths = sorted({a.env_class_path for a, _ in pairs})
    return Comparison(
        pairs=len(live),
        clusters=len(set(keys)),
        left_out=len(pairs) - len(live),
        reward=_rewards(live, keys),
        win_rate=_wins(live, keys),
        environments={
            path: _compare([pair for pair in pairs if pair[0].env_class_path == path])
            for path in paths
            if len(paths) > 1
        },
    )


def _rewards(live: Sequence[Pair], keys: Sequence[Hashable]) -> Difference:
    first, second = [a.final_reward for a, _ in live], [b.final_reward for _, b in live]
    width = max(first + second, default=0.0) - min(first + second, default=0.0)
    return difference(first, second, keys, width=width)


def _wins(live: Sequence[Pair], keys: Sequence[Hashable]) -> Difference | None:
    first, second = (reported_wins([record(pair[side]) for pair in live]) for side in (0, 1))
    pairs = [
        (a, b, key)
        for a, b, key in zip(first, second, keys, strict=True)
        if a is not None and b is not None
    ]
    if not pairs:
        return None
    ours, theirs, having = (list(column) for column in zip(*pairs, strict=True))
    return difference(ours, theirs, having, width=1.0)


def difference(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[Hashable], *, width: float
) -> Difference:
    """The mean paired difference of values whose range is `width` (see `spread_interval`)."""
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    gap = cluster_mean(gaps, clusters)
    interval = spread_interval(gap, gaps, clusters, -width, width)
    return Difference(mean(first), mean(second), gap.mean, interval)


# -- what a comparison can show --------------------------------------------------------------------

_EVEN = 0.5
"""Variance of the difference of two independent wins, each with probability 1/2: the largest that
two independent win rates can have."""


def smallest_difference(pairs: int, clusters: int, power: float = 0.8) -> float:
    """The smallest difference of win rates that `compare` shows with this probability on `pairs`
    rollouts of `clusters` tasks; infinite for one cluster.

    Pairs of one cluster are taken as independent, so a task is as hard for one side as for the
    other. Where all pairs of a cluster have one difference, a cluster counts as one pair.
    """
    if clusters < 2:
        return math.inf
    dof = clusters - 1
    return (t_quantile(0.975, dof) + t_quantile(power, dof)) * math.sqrt(_EVEN / pairs)
