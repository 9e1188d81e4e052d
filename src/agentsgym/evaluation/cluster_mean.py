"""A mean over clusters of rollouts, and its standard error and interval for few clusters."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from agentsgym.evaluation.student import t_quantile
from agentsgym.evaluation.wilson import wilson


@dataclass(frozen=True, slots=True)
class ClusterMean:
    """A mean over all values, its standard `error` and the number of `clusters`. `error` is NaN
    with fewer than two clusters."""

    mean: float
    error: float
    clusters: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """mean ± t·error with clusters − 1 degrees of freedom; two NaNs with fewer than two
        clusters."""
        if self.clusters < 2:
            return math.nan, math.nan
        half = t_quantile((1.0 + level) / 2, self.clusters - 1) * self.error
        return self.mean - half, self.mean + half


def cluster_mean(values: Sequence[float], clusters: Sequence[Hashable]) -> ClusterMean:
    """The mean of `values`, with the delete-one-cluster jackknife's standard error (CV3 of
    MacKinnon, Nielsen and Webb, 2023): the root of (G − 1)/G · Σ (m_g − mean of the m_g)² over the
    G clusters, where m_g is the mean without cluster g.

    With clusters of equal size this is the usual error of the mean of the clusters' means; with
    unequal ones it is larger than other cluster-robust errors, whose intervals are too narrow for
    few clusters. Raises ValueError if the lengths differ.
    """
    sums, sizes = cluster_sums(values, clusters)
    count = len(sums)
    total, size = float(sums.sum()), int(sizes.sum())
    if count < 2:
        return ClusterMean(total / size if size else math.nan, math.nan, count)
    with np.errstate(over="ignore", invalid="ignore"):  # the sum may exceed every float
        without = (total - sums) / (size - sizes)
        spread = float(((without - without.mean()) ** 2).sum())
    return ClusterMean(total / size, math.sqrt(spread * (count - 1) / count), count)


def spread_interval(
    found: ClusterMean,
    values: Sequence[float],
    clusters: Sequence[Hashable],
    low: float,
    high: float,
) -> tuple[float, float]:
    """The 95 % interval of a mean whose values lie between `low` and `high`.

    If all clusters have one mean, the sample shows no spread, though there may be some: a share of
    clusters up to Wilson's upper bound of 0 in G may have any other mean, so the ends are the mean
    moved by that share towards `low` and `high` (where these are finite).
    """
    if found.clusters < 2 or not clusters_alike(values, clusters):
        return found.interval()
    unseen = wilson(0, found.clusters)[1]
    return (
        found.mean - unseen * (found.mean - low if math.isfinite(low) else 0.0),
        found.mean + unseen * (high - found.mean if math.isfinite(high) else 0.0),
    )


def clusters_alike(values: Sequence[float], clusters: Sequence[Hashable]) -> bool:
    """Whether all clusters have the same mean. Raises ValueError without values."""
    sums, sizes = cluster_sums(values, clusters)
    means = sums / sizes
    return math.isclose(means.min(), means.max(), abs_tol=1e-12)


def cluster_sums(
    values: Sequence[float], clusters: Sequence[Hashable]
) -> tuple[np.ndarray, np.ndarray]:
    """Sum and number of the values of each cluster, in the order in which clusters first appear.
    Raises ValueError if the lengths differ."""
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values need as many clusters, got {len(clusters)}")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    index = np.array([numbers[cluster] for cluster in clusters], dtype=np.int64)
    return np.bincount(index, weights=np.asarray(values, dtype=np.float64)), np.bincount(index)
