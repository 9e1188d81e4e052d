"""The location of each session's cache: a row of the batch, an offloaded copy, or none.

A session that is being sampled has a row of the slot memory. Between its turns it keeps the row
until another session needs one; then the keys and values of its tokens are moved out, without
padding, and moved back at its next turn. If `max_cache_tokens` leaves no room for that, the least
recently used caches are dropped and read again later.

A prompt that several sessions start from is read by one of them and copied by the others.
"""

from collections.abc import Mapping

import numpy as np
import torch

from agentsgym.generation.embedded.batch import RowTable, shared_prefix
from agentsgym.generation.embedded.forward import Counters, keys_read
from agentsgym.generation.embedded.kv_cache import OffloadedCache, OffloadedCaches, SlotMemory
from agentsgym.types import GenerationRequest
from agentsgym.types.records import Ints

Key = int | str

_LEAST_SHARED = 8  # a shorter common prompt is read faster than copied


class SharedPrompts:
    """One reading session for each group and for each whole prompt.

    It is only a hint where to look: what that session still holds is compared token by token.
    """

    def __init__(self) -> None:
        self._reader: dict[Key, str] = {}
        self._keys: dict[str, list[Key]] = {}

    def share(
        self,
        table: RowTable,
        row_of: Mapping[str, int],
        row: int,
        request: GenerationRequest,
        context: Ints,
        reused: int,
    ) -> None:
        """Let `row`, which has `reused` tokens of its context cached, copy what a session with the
        same prompt reads or has read; else that session is this one from now on."""
        # A session in the middle of its own game gains nothing from another's prompt.
        if len(context) - reused < max(_LEAST_SHARED, reused):
            return
        keys = _keys(request, context)
        for reader in (self._reader.get(key) for key in keys):
            source = None if reader in (None, request.session_id) else row_of.get(reader or "")
            if source is None or table.source[source] >= 0:
                continue
            held = table.known[source] if table.active[source] else table.cached[source]
            shared = min(shared_prefix(table.tokens[source, :held], context), len(context) - 1)
            if shared - reused >= _LEAST_SHARED:
                table.source[row], table.shared[row] = source, shared
                return
        for key in keys:
            self._reader[key] = request.session_id
            self._keys.setdefault(request.session_id, []).append(key)

    def forget(self, session_id: str) -> None:
        """Remove a session that has ended."""
        for key in self._keys.pop(session_id, ()):
            if self._reader.get(key) == session_id:
                del self._reader[key]


def _keys(request: GenerationRequest, context: Ints) -> list[Key]:
    keys: list[Key] = [hash(context.tobytes())]
    return keys if request.group is None else [*keys, f"group {request.group}"]


_ROUND_LENGTH = 32
_MOVING = 1.5  # moving a key costs about as much as reading one and a half


class CacheManager:
    """Rows for at most `capacity` sessions at once, and the offloaded caches of others."""

    def __init__(
        self, layers: int, capacity: int, max_cache_tokens: int | None, counters: Counters
    ) -> None:
        self.capacity = capacity
        self.max_cache_tokens = max_cache_tokens
        self.memory = SlotMemory(layers)
        self.table = RowTable()
        self._counters = counters
        self._row: dict[str, int] = {}
        self._offloaded = OffloadedCaches()
        self._prompts = SharedPrompts()
        self._clock = 0
        self._wasted = 0

    @property
    def sessions(self) -> int:
        """Number of sessions that have a cache."""
        return len(self._row) + len(self._offloaded)

    @property
    def cache_tokens(self) -> int:
        """Tokens that memory is held for: the rows' full lengths and what is offloaded."""
        return self.memory.rows * self.memory.length + self._offloaded.tokens

    def row_of(self, session_id: str) -> int | None:
        """The session's row, or None while it has none."""
        return self._row.get(session_id)

    def acquire(self, session_id: str, limit: int, waiting: int) -> int | None:
        """A row of at least `limit` tokens with the session's cached part; None if full.

        `waiting` is the total number of requests that want a row; it decides how much to grow.
        """
        if self.table.active.sum() >= self.capacity:
            return None
        if session_id in self._row:
            self._touch(self._row[session_id])
        if limit > self.memory.length and not self._reshape(limit):
            return None
        if session_id not in self._row:
            row = self._vacant_row(waiting)
            if row is None and self._reshape(limit):
                row = self._vacant_row(waiting)
            if row is None:
                return None
            self.table.sessions[row] = session_id
            self._row[session_id] = row
            self._restore(session_id, row)
        return self._row[session_id]

    def begin(self, row: int, request: GenerationRequest, context: Ints, limit: int) -> None:
        """Start sampling `request` in `row`, up to `limit` tokens in total."""
        table = self.table
        reused = table.open(row, context, request.sampling, request.seed, request.sampled_before)
        table.limit[row] = limit
        self._touch(row)
        self._counters.reused_tokens += reused
        evicted = self._offloaded.take_evicted(request.session_id)
        self._counters.reread_tokens += max(0, min(evicted, len(context)) - reused)
        self._prompts.share(table, self._row, row, request, context, reused)

    def sort_by_length(self) -> None:
        """Sort the rows by length if that pays; called before every pass.

        It pays if rows have read as many keys unnecessarily (see `forward`) as moving all costs.
        """
        active = np.flatnonzero(self.table.active)
        lengths = self.table.known[active]
        self._wasted += keys_read(lengths) - keys_read(np.sort(lengths))
        moved = len(self.table) * self.memory.length
        if self._wasted <= _MOVING * moved or (self.table.source >= 0).any():
            return
        self._wasted = 0
        order = np.lexsort((self.table.known, ~self.table.active))
        self.table.resize(len(self.table), self.table.length, order)
        self.memory.permute(torch.from_numpy(order))
        self._index_rows()

    def forget(self, session_id: str, *, poisoned: bool = False) -> None:
        """Free the session's row or offloaded cache; unknown sessions are ignored.

        `poisoned` says that the row may hold NaN, which masks do not stop: 0 x NaN is NaN.
        """
        row = self._row.pop(session_id, None)
        if row is not None:
            self.table.free(row)
            if poisoned:
                self.memory.wipe(row)
        self._prompts.forget(session_id)
        self._offloaded.forget(session_id)

    def clear(self) -> None:
        """Drop all keys and values. Rows being sampled keep their tokens and read them again."""
        for session_id, row in self._row.items():
            cached = int(self.table.cached[row])
            if self.table.active[row]:
                self._counters.reread_tokens += cached
            else:
                self._offloaded.note_evicted(session_id, cached)
        self._offloaded.evict_all()
        self.table.cached[:] = 0
        self.table.source[:] = -1
        self.memory.clear()

    def _touch(self, row: int) -> None:
        self._clock += 1
        self.table.order[row] = self._clock

    def _rows_allowed(self, length: int) -> int:
        """How many rows of `length` tokens there may be."""
        if self.max_cache_tokens is None or length == 0:
            return self.capacity
        return min(self.capacity, self.max_cache_tokens // length)

    def _reshape(self, limit: int) -> bool:
        """Give all rows room for `limit` tokens, and one row to spare; False if memory is short.

        Unbounded memory grows by doubling, so that copying is amortized. Bounded memory is reduced
        to the need of the active rows, because longer rows mean fewer rows.
        """
        active = self.table.active
        if self.max_cache_tokens is None:
            self._resize(len(self.table), _rounded(max(limit, 2 * self.memory.length)))
            return True
        longest = max(limit, int(self.table.limit[active].max(initial=0)))
        length = min(_rounded(longest), self.max_cache_tokens)
        rows = self._rows_allowed(length)
        if rows <= active.sum():
            return False
        self._fit(min(rows, len(self.table)), length)
        self._evict_beyond_memory()
        return True

    def _fit(self, rows: int, length: int) -> None:
        """Keep the active, then the most recently used rows that fit; offload the others."""
        table = self.table
        order = np.lexsort((-table.order, ~table.active))
        fitting = order[table.active[order] | (table.cached[order] <= length)]
        for row in np.setdiff1d(order, fitting[:rows]):
            self._offload(int(row))
        self._resize(rows, length, fitting[:rows].copy())

    def _resize(self, rows: int, length: int, order: Ints | None = None) -> None:
        self.table.resize(rows, length, order)
        self.memory.resize(rows, length, None if order is None else torch.from_numpy(order))
        self._index_rows()

    def _index_rows(self) -> None:
        self._row = {name: row for row, name in enumerate(self.table.sessions) if name is not None}

    def _vacant_row(self, waiting: int) -> int | None:
        """A free row, a new one, or the row of the least recently used idle session."""
        table = self.table
        if None in table.sessions:
            return table.sessions.index(None)
        rows, allowed = len(table), self._rows_allowed(self.memory.length)
        if rows < allowed:
            wanted = max(2 * rows, int(table.active.sum()) + waiting)
            self._resize(min(allowed, wanted), self.memory.length)
            self._evict_beyond_memory()
            return rows
        idle = np.flatnonzero(~table.active)
        if not len(idle):
            return None
        row = int(idle[table.order[idle].argmin()])
        self._offload(row)
        self._evict_beyond_memory()
        return row

    def _offload(self, row: int) -> None:
        """Move a row's cache out of the batch and free the row."""
        session_id, cached = self.table.sessions[row], int(self.table.cached[row])
        if session_id is None:
            return
        if cached:
            tokens = self.table.tokens[row, :cached].copy()
            cache = OffloadedCache(tokens, self.memory.extract(row, cached))
            self._offloaded.put(session_id, cache)
            self._counters.offloaded += 1
        del self._row[session_id]
        self.table.free(row)

    def _restore(self, session_id: str, row: int) -> None:
        cache = self._offloaded.take(session_id)
        if cache is None:
            return
        count = len(cache.tokens)
        self.memory.insert(row, cache.content)
        self.table.tokens[row, :count] = cache.tokens
        self.table.cached[row] = count

    def _evict_beyond_memory(self) -> None:
        """Drop offloaded caches, least recently used first, until `max_cache_tokens` is kept."""
        if self.max_cache_tokens is None:
            return
        while len(self._offloaded) and self.cache_tokens > self.max_cache_tokens:
            self._offloaded.evict_oldest()
            self._counters.evictions += 1


def _rounded(length: int) -> int:
    return -(-length // _ROUND_LENGTH) * _ROUND_LENGTH
