"""How much one thing tells about another, beside what chance gives, and how far two numbers go
together."""

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from agentsgym.evaluation.intervals import t_quantile

Pairs = Sequence[tuple[str, str]]
_SHUFFLES = 20


@dataclass(frozen=True, slots=True)
class Dependence:
    """Of `count` pairs, in nats per pair: the `entropy` of the second members, the `most`
    information that they can share with the first ones, what they do (`shared`), what they seem to
    after shuffling (`chance`), and two standard deviations of that (`error`). RAGEN-2 (arXiv
    2604.06268) watches this information."""

    count: int
    entropy: float
    most: float
    shared: float
    chance: float
    error: float

    @property
    def room(self) -> float:
        """The information that could be shared beyond chance; 0 if each pair is another."""
        return self.most - self.chance


def dependence(strata: Sequence[Pairs], seed: int = 0) -> Dependence | None:
    """The mutual information of pairs within strata, with those of 20 shuffles within each. None if
    there are no pairs, or their second members are all the same."""
    count, rng = sum(map(len, strata)), random.Random(seed)
    entropy = sum(_entropy([second for _, second in pairs]) for pairs in strata)
    if not count or entropy <= 0:
        return None
    most = sum(min(_entropy([a for a, _ in p]), _entropy([b for _, b in p])) for p in strata)
    shared = sum(map(_information, strata))
    chances = [sum(_information(_shuffled(p, rng)) for p in strata) for _ in range(_SHUFFLES)]
    chance = sum(chances) / _SHUFFLES
    spread = math.sqrt(sum((one - chance) ** 2 for one in chances) / (_SHUFFLES - 1))
    return Dependence(count, *(x / count for x in (entropy, most, shared, chance, 2 * spread)))


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's, of `count` pairs of numbers, and its 95 % interval; NaN where it is unknown."""

    value: float
    low: float
    high: float
    count: int


def correlation(
    one: Sequence[float], other: Sequence[float], clusters: Sequence[Hashable]
) -> Correlation:
    """The correlation of two numbers of the same things, with Student's interval of the jackknife
    over whole clusters, after Fisher's transformation: unknown with fewer than three clusters."""
    if not clusters:
        return Correlation(math.nan, math.nan, math.nan, 0)
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    members, count = [numbers[cluster] for cluster in clusters], len(numbers)
    x, y = np.asarray(one, np.float64), np.asarray(other, np.float64)
    x, y = x - x.mean(), y - y.mean()
    moments = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y])
    sums = np.stack([np.bincount(members, row, count) for row in moments])
    value = float(_pearson(sums.sum(-1)))
    if count < 3:
        return Correlation(value, math.nan, math.nan, len(x))
    without = np.arctanh(_pearson(sums.sum(-1, keepdims=True) - sums))
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    centre, half = (
        math.atanh(min(1.0, max(-1.0, value)) * _ALMOST),
        t_quantile(0.975, count - 1) * error,
    )
    return Correlation(value, math.tanh(centre - half), math.tanh(centre + half), len(x))


_ALMOST = 1 - 1e-12


def _pearson(sums: np.ndarray) -> np.ndarray:
    """Of sums over pairs of 1, x, y, x², y² and xy, shape (6, …); NaN where x or y is constant."""
    count, x, y, xx, yy, xy = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        own = (xx - x * x / count) * (yy - y * y / count)
        value = (xy - x * y / count) / np.sqrt(own)
        result: np.ndarray = np.where(own <= 1e-18 * xx * yy, math.nan, value * _ALMOST)
    return result


def _shuffled(pairs: Pairs, rng: random.Random) -> Pairs:
    second = [one for _, one in pairs]
    rng.shuffle(second)
    return [(first, one) for (first, _), one in zip(pairs, second, strict=True)]


def _entropy(values: Sequence[object]) -> float:
    """Nats times the number of values."""
    counts = Counter(values).values()
    return len(values) * math.log(len(values)) - sum(n * math.log(n) for n in counts)


def _information(pairs: Pairs) -> float:
    """Nats times the number of pairs."""
    first, second = [one for one, _ in pairs], [one for _, one in pairs]
    return _entropy(first) + _entropy(second) - _entropy(pairs)
