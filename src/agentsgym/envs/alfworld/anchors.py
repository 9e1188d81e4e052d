"""A short key for a state of the engine's world: equal states have equal keys."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_LOOKED = frozenset({"checked", "examined"})
"""Facts that record past examinations and do not affect the world. Negated facts are ignored too:
the engine keeps them for facts that were once true, so they describe the history, not the state."""


def anchor(facts: Iterable[Any]) -> str:
    """16 hexadecimal digits that depend only on the set of facts, not on order or hash seed."""
    digest = 0
    for fact in facts:
        if fact.name not in _LOOKED and not fact.is_negation:
            digest ^= _fact_digest(fact)
    return f"{digest:016x}"


@lru_cache(maxsize=1 << 16)
def _fact_digest(fact: Any) -> int:
    return int.from_bytes(hashlib.blake2b(str(fact).encode(), digest_size=8).digest(), "big")
