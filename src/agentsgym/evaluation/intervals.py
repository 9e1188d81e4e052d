"""Confidence intervals: over clusters of episodes, and for a plain proportion."""

import math
from collections.abc import Hashable, Sequence

import numpy as np

from agentsgym.evaluation.cluster_mean import (
    cluster_mean,
    cluster_sums,
    clusters_alike,
    spread_interval,
)
from agentsgym.evaluation.wilson import wilson

RESAMPLES = 2000
FEW_CLUSTERS = 20
"""Below this number, `mean_interval` does not resample."""


def cluster_bootstrap(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of the mean of `values`, resampling whole clusters with replacement.

    Episodes of one cluster (for instance of one secret) are similar, so resampling episodes would
    give intervals that are too narrow. With few clusters the interval is still too narrow; see
    `mean_interval`. Two NaNs without values. Raises ValueError if the lengths differ.
    """
    sums, sizes = cluster_sums(values, clusters)
    if not len(sums):
        return math.nan, math.nan
    drawn = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    tail = (1.0 - level) / 2
    with np.errstate(over="ignore", invalid="ignore"):  # the sum may exceed every float
        means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
        low, high = np.quantile(means, [tail, 1.0 - tail])
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
