"""The KV memory, written and read by index, and which session's cache is in which row of it.

A session keeps its row between its turns, until another session needs it; then its cache is
dropped, and read again at its next turn. The start of a context that another session has read, or
is about to read, is copied from there.
"""

from collections import defaultdict
from typing import Any

import numpy as np
from torch import Tensor
from transformers.cache_utils import Cache

from agentsgym.generation.embedded.batch import RowTable
from agentsgym.types import GenerationRequest
from agentsgym.types.rows import Ints

_LEAST_SHARED = 8  # a shorter common start is read faster than copied
_LEAST_PREFIX = 64  # a shorter one is read for each row
_ROUND_LENGTH = 32


class KVMemory:
    """Keys and values of `rows` sessions of up to `length` tokens each.

    `planes` are 2 x layers tensors [rows, kv_heads, length, head_dim] (keys at even, values at odd
    indices). They are made when the first key arrives, which determines their shape and dtype.
    They are separate, so that a resize holds at most one of them twice. They start as zeros:
    unwritten positions are masked, but 0 x NaN would still be NaN.
    """

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.rows = 0
        self.length = 0
        self.planes: list[Tensor] = []

    def grow(self, rows: int, length: int) -> None:
        """Make room for so many rows of so many tokens."""
        for i, old in enumerate(self.planes):
            new = old.new_zeros((rows, old.shape[1], length, old.shape[3]))
            new[: self.rows, :, : self.length] = old
            self.planes[i] = new
        self.rows, self.length = rows, length

    def clear(self) -> None:
        """Free the planes; the shape stays."""
        self.planes = []

    def wipe(self, row: int) -> None:
        """Zero a row."""
        for plane in self.planes:
            plane[row].zero_()

    def of_layer(self, layer: int, like: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, for states like `like` and `values` [1, kv_heads, n, dim].

        Raises ValueError if the layers' keys and values differ in shape.
        """
        if not self.planes:
            shape = (self.rows, like.shape[1], self.length, like.shape[-1])
            self.planes = [like.new_zeros(shape) for _ in range(2 * self.layers)]
        if values.shape != like.shape or like.shape[1::2] != self.planes[0].shape[1::2]:
            raise ValueError(
                f"layer {layer} has keys {tuple(like.shape)} and values {tuple(values.shape)}: "
                "layers of different shapes are not supported"
            )
        return self.planes[2 * layer], self.planes[2 * layer + 1]


class PassCache(Cache):  # type: ignore[misc]  # transformers is untyped here
    """The cache that the model's attention layers write to: one pass's view of the memory.

    A model sees the pass as one sequence of N packed tokens, [1, kv_heads, N, head_dim].
    """

    def __init__(self, memory: KVMemory, rows: Tensor, positions: Tensor) -> None:
        super().__init__(layers=[])
        self.memory = memory
        self.rows = rows
        self.positions = positions
        self.copy_from: Tensor | None = None
        self.copy_to: Tensor | None = None
        self.copy_length = 0

    def copy(self, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` tokens of rows `sources` to rows `targets`."""
        self.copy_from, self.copy_to, self.copy_length = sources, targets, length

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the pass's N tokens to their rows; return the layer's whole keys and values."""
        planes = self.memory.of_layer(layer_idx, key_states, value_states)
        for plane, states in zip(planes, (key_states, value_states), strict=True):
            self._write(plane, states)
            if self.copy_to is not None:
                plane[self.copy_to, :, : self.copy_length] = plane[
                    self.copy_from, :, : self.copy_length
                ]
                # The copy may run over what a target row itself read in this pass.
                self._write(plane, states)
        return planes

    def _write(self, plane: Tensor, states: Tensor) -> None:
        plane[self.rows, :, self.positions] = states[0].transpose(0, 1).to(plane.dtype)


class CacheManager:
    """Rows for at most `capacity` sessions at once; `totals` are the engine's."""

    def __init__(self, layers: int, capacity: int, totals: defaultdict[str, float]) -> None:
        self.capacity = capacity
        self.memory = KVMemory(layers)
        self.table = RowTable()
        self._totals = totals
        self._clock = 0

    @property
    def sessions(self) -> int:
        """Number of sessions that have a cache."""
        return len(self.table.row_of)

    def acquire(self, session_id: str, limit: int, waiting: int) -> int | None:
        """A row of at least `limit` tokens with the session's cache; None if full.

        `waiting` is the total number of requests that want a row; it decides how much to grow.
        """
        table = self.table
        if table.active.sum() >= self.capacity:
            return None
        if limit > self.memory.length:  # doubled, so that copying is amortized
            self._grow(len(table), _rounded(max(limit, 2 * self.memory.length)))
        if session_id not in table.row_of:
            table.give(self._vacant_row(waiting), session_id)
        return table.row_of[session_id]

    def begin(self, row: int, request: GenerationRequest, context: Ints, limit: int) -> None:
        """Start sampling `request` in `row`, up to `limit` tokens in total."""
        table = self.table
        reused = table.open(row, context, request.sampling, request.seed, request.sampled_before)
        table.limit[row] = limit
        self._clock += 1
        table.order[row] = self._clock
        self._totals["reused_tokens"] += reused
        if len(context) - reused >= _LEAST_SHARED:
            self._share(row, context, reused)

    def _share(self, row: int, context: Ints, reused: int) -> None:
        """Let a row, which has `reused` tokens of its context cached, copy more from another: from
        one with the same prompt, or with the same game so far."""
        table, most = self.table, len(context) - 1
        held = np.where(table.active, table.known, table.cached)
        held[table.source >= 0] = 0  # they wait themselves
        held[row] = 0
        others = np.flatnonzero((held > reused) & (table.tokens[:, reused] == context[reused]))
        if not len(others):
            return
        differs = table.tokens[others, :most] != context[:most]
        alike = np.where(differs.any(1), differs.argmax(1), most)
        common = np.minimum(alike, held[others])
        source, shared = int(others[common.argmax()]), int(common.max())
        if shared - reused >= _LEAST_SHARED:
            table.source[row], table.shared[row] = source, shared
        if shared >= _LEAST_PREFIX:
            table.join(row, source, shared, self._clock)

    def forget(self, session_id: str, *, poisoned: bool = False) -> None:
        """Free the session's row; unknown sessions are ignored.

        `poisoned` says that the row may hold NaN, which masks do not stop: 0 x NaN is NaN.
        """
        row = self.table.row_of.get(session_id)
        if row is not None:
            self.table.free(row)
            if poisoned:
                self.memory.wipe(row)

    def clear(self) -> None:
        """Drop all keys and values. Rows being sampled keep their tokens and read them again."""
        self.table.cached[:] = 0
        self.table.source[:] = -1
        self.memory.clear()

    def _grow(self, rows: int, length: int) -> None:
        self.table.grow(rows, length)
        self.memory.grow(rows, length)

    def _vacant_row(self, waiting: int) -> int:
        """A free row, a new one, or the row of the least recently used idle session."""
        table = self.table
        if None in table.sessions:
            return table.sessions.index(None)
        rows = len(table)
        if rows < self.capacity:
            size = max(2 * rows, int(table.active.sum()) + waiting)
            self._grow(min(self.capacity, size), self.memory.length)
            return rows
        idle = np.flatnonzero(~table.active)
        row = int(idle[table.order[idle].argmin()])
        self._totals["evictions"] += bool(table.cached[row])
        table.free(row)
        return row


def _rounded(length: int) -> int:
    return -(-length // _ROUND_LENGTH) * _ROUND_LENGTH
