"""Caches of sessions that have no row: moved out of the batch, or dropped for want of memory."""

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor

from agentsgym.types.records import Ints


@dataclass(frozen=True, slots=True)
class OffloadedCache:
    """A cache outside the batch: its tokens [n] and content [2 x layers, kv_heads, n, head_dim]."""

    tokens: Ints
    content: Tensor


class OffloadedCaches:
    """One cache for each session that was moved out, in the order in which they were, and the
    lengths of those that were dropped since."""

    def __init__(self) -> None:
        self._caches: OrderedDict[str, OffloadedCache] = OrderedDict()
        self._evicted: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._caches)

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return sum(len(cache.tokens) for cache in self._caches.values())

    def put(self, session_id: str, cache: OffloadedCache) -> None:
        """Keep a session's cache."""
        self._caches[session_id] = cache

    def take(self, session_id: str) -> OffloadedCache | None:
        """Hand a session's cache back; None where there is none."""
        return self._caches.pop(session_id, None)

    def evict_oldest(self) -> None:
        """Drop the cache that was moved out first."""
        session_id, cache = self._caches.popitem(last=False)
        self._evicted[session_id] = len(cache.tokens)

    def evict_all(self) -> None:
        """Drop all."""
        while self._caches:
            self.evict_oldest()

    def note_evicted(self, session_id: str, tokens: int) -> None:
        """A session has lost a cache that lay elsewhere."""
        self._evicted[session_id] = tokens

    def take_evicted(self, session_id: str) -> int:
        """How many tokens the session's dropped cache held; 0 where none was. Told once."""
        return self._evicted.pop(session_id, 0)

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        self._caches.pop(session_id, None)
        self._evicted.pop(session_id, None)
