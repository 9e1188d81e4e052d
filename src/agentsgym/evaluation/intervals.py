"""Confidence intervals: over clusters of episodes, and for a plain proportion."""

import math
from collections.abc import Hashable, Sequence

import numpy as np

RESAMPLES = 2000
_Z95 = 1.959963984540054


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
    give intervals that are too narrow. With few clusters (below about 20) the interval is still too
    narrow. Two NaNs without values. Raises ValueError if the lengths differ.
    """
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values need as many clusters, got {len(clusters)}")
    if not values:
        return math.nan, math.nan
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    index = np.array([numbers[cluster] for cluster in clusters])
    sums = np.bincount(index, weights=np.asarray(values, dtype=np.float64))
    sizes = np.bincount(index)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    tail = (1.0 - level) / 2
    with np.errstate(over="ignore", invalid="ignore"):  # the sum may exceed every float
        means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
        low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def rate_interval(
    shares: Sequence[float], clusters: Sequence[Hashable], *, seed: int = 0
) -> tuple[float, float]:
    """`cluster_bootstrap` of shares between 0 and 1.

    If all are 0 or all are 1, resampling shows no spread, though there may be some; the interval
    is then Wilson's, with each cluster counted once.
    """
    if shares and min(shares) == max(shares) and shares[0] in (0.0, 1.0):
        number = len(set(clusters))
        return wilson(number if shares[0] else 0, number)
    return cluster_bootstrap(shares, clusters, seed=seed)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion of independent trials.

    Raises ValueError unless 0 <= successes <= trials and trials >= 1.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"need 0 <= successes <= trials, trials >= 1; got {successes}, {trials}")
    share = successes / trials
    z2 = _Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    half /= 1 + z2 / trials
    return max(0.0, centre - half), min(1.0, centre + half)
