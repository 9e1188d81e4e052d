"""Beliefs that differ only by names: one of them stands for all, which keeps exact play small."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import permutations

from agentsgym.envs.exploration.beliefs import Evidence

Canonical = Callable[[Evidence], Evidence]

_MOST_PERMUTED = 4


def any_order(evidence: Evidence) -> Evidence:
    """For games in which a true answer tells the value, so that all values are alike."""
    return tuple(sorted(evidence))


@lru_cache(maxsize=100_000)
def any_bits(evidence: Evidence) -> Evidence:
    """For queries that each tell a bit of the value: bits may be flipped and, if there are at most
    4, change places."""
    return min(_renamed(evidence))


def _renamed(evidence: Evidence) -> Iterator[Evidence]:
    for moved in _orders(len(evidence)):
        for mask in range(len(evidence)):
            yield tuple([evidence[value ^ mask] for value in moved])


@lru_cache(maxsize=16)
def _orders(choices: int) -> list[tuple[int, ...]]:
    """The values in the order that each order of their bits gives."""
    bits = range(choices.bit_length() - 1)
    orders = permutations(bits) if len(bits) <= _MOST_PERMUTED else [tuple(bits)]
    return [
        tuple(
            sum((value >> k & 1) << place for place, k in enumerate(order))
            for value in range(choices)
        )
        for order in orders
    ]
