"""The game, the answers and the latencies of `scale.py`, as pure functions of a game and a turn.

Imports only the standard library: all virtual environments and servers use it.
"""

import hashlib
import math
from statistics import NormalDist

SHORTEST, MEDIAN, LONGEST, SIGMA = 0.02, 0.08, 0.4, 0.8
TEXTS = 4096
_QUANTILES = 4096


def _quantile(number: int) -> float:
    normal = NormalDist().inv_cdf((number + 0.5) / _QUANTILES)
    return min(LONGEST, max(SHORTEST, MEDIAN * math.exp(SIGMA * normal)))


_LATENCIES = tuple(map(_quantile, range(_QUANTILES)))
_THINGS = ("door", "lamp", "box", "key", "stone", "map", "rope", "coin", "book", "bell", "cup")
_PLACES = ("left", "right", "north", "south", "attic", "cellar", "garden", "kitchen")
RULES = (
    "You walk through a house. Each turn you see one thing, and you say where you go and what you "
    "look at, with a number. The walk ends after some turns, and its end decides what it earns. "
    "Answer with one sentence only, without any explanation."
)


def drawn(*parts: object) -> int:
    """64 bits that depend only on the parts."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


def latency(draw: int) -> float:
    """Seconds that an answer takes: log-normal, cut off at SHORTEST and LONGEST."""
    return _LATENCIES[draw % _QUANTILES]


def mean_latency() -> float:
    """Mean of the latencies in seconds."""
    return sum(_LATENCIES) / _QUANTILES


def text_number(draw: int) -> int:
    """Which of TEXTS texts the answer has."""
    return draw // _QUANTILES % TEXTS


def text_of(number: int) -> str:
    """The text of an answer."""
    thing, place = _THINGS[number % 11], _PLACES[number // 11 % 8]
    return f"I go {place} and look at the {thing}, number {number}."


def observation(game: int, turn: int) -> str:
    """What the game says before the action of a turn; hardly any two are equal."""
    draw = drawn("observation", game, turn)
    thing, place = _THINGS[draw % 11], _PLACES[draw // 11 % 8]
    seen = f"Turn {turn}. You see a {thing}, number {draw // 88 % 100_000}, to the {place}."
    return seen if turn else f"{RULES}\n{seen}"


def turns(game: int, longest: int) -> int:
    """The length of a game: between half of the longest and the longest."""
    return longest - drawn("turns", game) % (longest // 2 + 1)


def reward(turns: int, last: str) -> float:
    """What a game earns for its last action; both sides of a comparison must find the same."""
    return drawn("reward", turns, last) % 100 / 100
