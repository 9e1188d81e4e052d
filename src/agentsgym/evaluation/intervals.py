"""Confidence intervals of means over clusters of rollouts, and of plain proportions.

Rollouts of one cluster (for instance of one secret) are similar, so a cluster counts as a whole.
With many clusters they are resampled; with few, it is Student's interval of the jackknife's error.
"""

import functools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

Interval = tuple[float, float]
"""Both ends; two NaNs where an interval is unknown."""

RESAMPLES = 2000
FEW_CLUSTERS = 20
"""Below this number, `mean_interval` does not resample."""


def cluster_bootstrap(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """95 % percentile interval of the mean of `values`, resampling whole clusters with replacement.

    Episodes of one cluster (for instance of one secret) are similar, so resampling episodes would
    give intervals that are too narrow. With few clusters the interval is still too narrow; see
    `mean_interval`. Two NaNs without values. Raises ValueError if the lengths differ.
    """
    sums, sizes = cluster_sums(values, clusters)
    if not len(sums):
        return math.nan, math.nan
    choices = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    with np.errstate(over="ignore", invalid="ignore"):  # the sum may exceed every float
        means = sums[choices].sum(axis=1) / sizes[choices].sum(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def mean_interval(
    values: Sequence[float], clusters: Sequence[Hashable], *, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of the mean: `cluster_bootstrap`, or with fewer than `FEW_CLUSTERS` clusters
    Student's interval from `cluster_mean`, which holds for few. Two NaNs for one cluster."""
    if len(set(clusters)) < FEW_CLUSTERS:
        return cluster_mean(values, clusters).interval()
    return cluster_bootstrap(values, clusters, seed=seed)


def rate_interval(
    shares: Sequence[float], clusters: Sequence[Hashable], *, seed: int = 0
) -> tuple[float, float]:
    """`mean_interval` of shares, within 0 and 1.

    If all are 0 or all are 1, the sample shows no spread, though there may be some; the interval
    is then Wilson's, with each cluster counted once. If all clusters have another mean in common,
    it is `spread_interval`. For one cluster it is 0 to 1.
    """
    if shares and min(shares) == max(shares) and shares[0] in (0.0, 1.0):
        number = len(set(clusters))
        return wilson(number if shares[0] else 0, number)
    if shares and clusters_alike(shares, clusters):
        low, high = spread_interval(cluster_mean(shares, clusters), shares, clusters, 0.0, 1.0)
    else:
        low, high = mean_interval(shares, clusters, seed=seed)
    return (max(0.0, low), min(1.0, high)) if math.isfinite(high) else (0.0, 1.0)


# -- a mean over clusters --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterMean:
    """A mean over all values, its standard `error` and the number of `clusters`. `error` is NaN
    with fewer than two clusters."""

    mean: float
    error: float
    clusters: int

    def interval(self) -> tuple[float, float]:
        """95 %: mean ± t·error with clusters − 1 degrees of freedom; two NaNs with fewer than two
        clusters."""
        if self.clusters < 2:
            return math.nan, math.nan
        half = t_quantile(0.975, self.clusters - 1) * self.error
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
    estimate: ClusterMean,
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
    if estimate.clusters < 2 or not clusters_alike(values, clusters):
        return estimate.interval()
    unseen = wilson(0, estimate.clusters)[1]
    return (
        estimate.mean - unseen * (estimate.mean - low if math.isfinite(low) else 0.0),
        estimate.mean + unseen * (high - estimate.mean if math.isfinite(high) else 0.0),
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


# -- proportions and Student's distribution --------------------------------------------------------

_Z95 = 1.959963984540054


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion of independent trials."""
    share = successes / trials
    z2 = _Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    half /= 1 + z2 / trials
    return max(0.0, centre - half), min(1.0, centre + half)


_HALVINGS = 100  # of a bracket: beyond the precision of a float


def t_cdf(t: float, dof: int) -> float:
    """P(T <= t): Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(dof))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    term = math.cos(angle) if dof % 2 else 1.0
    total = 0.0
    for k in range(3 if dof % 2 else 2, dof + 1, 2):
        total += term
        term *= square * (k - 1) / k
    inside = sine * total if dof % 2 == 0 else (angle + sine * total) * 2 / math.pi
    return 0.5 + inside / 2


@functools.lru_cache
def t_quantile(share: float, dof: int) -> float:
    """The t with P(T <= t) = `share`, by bisection."""
    if share < 0.5:
        return -t_quantile(1.0 - share, dof)
    low, high = 0.0, 1.0
    while t_cdf(high, dof) < share:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, dof) < share else (low, middle)
    return high
