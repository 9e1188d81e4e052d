"""A short name for a state of the engine's world, equal where the world is."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_LOOKED = frozenset({"checked", "examined"})
"""Facts that record what was looked at; they change nothing. Negated facts are left out too: the
engine keeps them for what was once true, so they tell of the way and not of the world."""


def anchor(facts: Iterable[Any]) -> str:
    """16 hexadecimal digits that depend on the set of facts alone, on no order or hash seed."""
    digest = 0
    for fact in facts:
        if fact.name not in _LOOKED and not fact.is_negation:
            digest ^= _fact_digest(fact)
    return f"{digest:016x}"


@lru_cache(maxsize=1 << 16)
def _fact_digest(fact: Any) -> int:
    return int.from_bytes(hashlib.blake2b(str(fact).encode(), digest_size=8).digest(), "big")
