"""How much one thing tells about another, beside what chance gives."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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
