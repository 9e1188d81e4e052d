"""The KV memory, written and read by index, and which session's cache is in which row of it.

A session keeps its row between its turns, until another session needs it or its memory; then its
cache is dropped, and read again at its next turn. The start of a context that another session has
read, or is about to read, is copied from there. A request is begun only if the keys of its longest
answer fit beside those of all that are sampled, so that none ever has to stop.
"""

import os
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentsgym.generation.embedded.batch import RowTable
from agentsgym.types import GenerationRequest
from agentsgym.types.rows import Ints

BLOCK = 32
"""Tokens of a block where rows consist of several."""

_LEAST_SHARED = 8  # a shorter common start is read faster than copied
_LEAST_PREFIX = 64  # a shorter one is read for each row
_SPARE = 16  # one block in so many is made before it is needed,
_STEP = 128 * 2**20  # and as many as these bytes hold, since copies, and new graphs, take time
_SHARE = 0.8  # of the free memory; the rest is for what a pass computes
_KEPT = 8  # so large a part of the budget stays with an engine on a GPU that has no session
_GIB = 2**30


class KVMemory:
    """Keys and values of `rows` sessions of up to `length` tokens each, in blocks.

    `planes` are 2 x layers tensors [blocks, kv_heads, tokens, head_dim] (keys at even, values at
    odd indices). A block is a whole row, so that attention reads rows as they lie; or, if the
    memory is `paged`, BLOCK tokens, and `table` [rows, n] names those of each row, 0 where it needs
    none yet. Block 0 is then nobody's: passes of a fixed size write there what no row reads.

    Planes are made when the first key arrives, which determines their shape and dtype. They are
    separate, so that a resize holds at most one of them twice; if one fails, all must be dropped
    (`clear`). They start as zeros: unwritten positions are masked, but 0 x NaN would still be NaN.
    `version` counts how often they were made.
    """

    def __init__(self, layers: int, *, paged: bool = False, most: int = 0) -> None:
        self.layers, self.paged = layers, paged
        self.most = most  # blocks that there may be, block 0 left out
        self.step = 0  # blocks that it grows by at least
        self.kept = 0  # blocks that it does not give back
        self.rows = self.length = self.version = self.blocks = 0
        self.planes: list[Tensor] = []
        self.table: Ints = np.zeros((0, 0), np.int64)
        self._free: list[int] = []

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values in all layers, once there are planes."""
        return sum(plane[0, :, 0].numel() * plane.element_size() for plane in self.planes)

    @property
    def size(self) -> int:
        """Bytes of all planes."""
        return sum(plane.nbytes for plane in self.planes)

    @property
    def block(self) -> int:
        """Tokens of a block."""
        return BLOCK if self.paged else self.length

    def grow(self, rows: int, length: int) -> None:
        """Make room for so many rows of so many tokens; if it is paged, for their names only."""
        self.rows, self.length = rows, length
        if self.paged:
            table = np.zeros((rows, blocks_of(length)), np.int64)
            table[: self.table.shape[0], : self.table.shape[1]] = self.table
            self.table = table
        else:
            self._resize(rows, slice(None))

    def fit(self, rows: Ints, ends: Ints) -> None:
        """Let rows [n] have blocks for their first `ends` [n] tokens."""
        if not self.paged:
            return
        held = (self.table[rows] > 0).sum(1)
        short = (blocks_of(ends) - held).clip(0)
        if short.sum() > len(self._free):
            self._repack(int(short.sum()))
        for i in np.flatnonzero(short):
            new = [self._free.pop() for _ in range(short[i])]
            self.table[rows[i], held[i] : held[i] + len(new)] = new

    def keep(self, row: int, tokens: int) -> None:
        """Take the blocks back that a row does not need for its first `tokens`."""
        if not self.paged:
            return
        rest = self.table[row, blocks_of(tokens) :]
        self._free += rest[rest > 0].tolist()
        rest[:] = 0
        if len(self._free) > max(self.blocks // 4, 2 * self.step) and self.blocks > self.kept:
            self._repack(0)

    def clear(self, *, keeps: bool = False) -> None:
        """Take the blocks of all rows back, and free the planes unless it `keeps` them, as what
        they hold is finite; rows and length stay."""
        self.table[:] = 0
        if keeps:
            self._free = list(range(self.blocks - 1, 0, -1))
            return
        self.planes, self.blocks, self._free = [], 0, []
        self.version += 1

    def address(self, rows: Ints, positions: Ints) -> tuple[Ints, Ints]:
        """Block, and place in it, of each row's token at `positions`; all are [n]."""
        if not self.paged:
            return rows, positions
        return self.table[rows, positions // BLOCK], positions % BLOCK

    def read_by(self, rows: Ints) -> Ints:
        """The blocks [n, most] that `rows` [n] read together, their first ones where they have no
        more: another's may hold NaN, which masks do not stop, as 0 x NaN is NaN."""
        blocks = self.table[rows]
        return np.where(blocks > 0, blocks, blocks[:, :1])

    def copies(self, copies: Ints, device: torch.device) -> "Copies":
        """`copies` [m, 3] of (source row, target row, tokens), m > 0, in blocks."""
        if not self.paged:
            return Copies(copies, device)
        parts = []
        for source, target, tokens in copies:
            blocks = self.table[[source, target], : blocks_of(tokens)]
            left = tokens - BLOCK * np.arange(blocks.shape[1])
            parts.append(np.stack((*blocks, np.minimum(left, BLOCK)), 1))
        return Copies(np.concatenate(parts), device)

    def wipe(self, row: int) -> None:
        """Set a row's keys and values to 0."""
        blocks = self.table[row] if self.paged else np.array([row])
        if self.planes:
            index = torch.from_numpy(blocks).to(self.planes[0].device)
            for plane in self.planes:
                plane.index_fill_(0, index, 0)

    def of_layer(self, layer: int, like: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, for states like `like` and `values` [1, kv_heads, n, dim].

        Raises ValueError if the layers' keys and values differ in shape.
        """
        if not self.planes:
            blocks = self.blocks if self.paged else self.rows
            shape = (blocks, like.shape[1], self.block, like.shape[-1])
            self.planes = [like.new_zeros(shape) for _ in range(2 * self.layers)]
            self.version += 1
        if values.shape != like.shape or like.shape[1::2] != self.planes[0].shape[1::2]:
            raise ValueError(
                f"layer {layer} has keys {tuple(like.shape)} and values {tuple(values.shape)}: "
                "layers of different shapes are not supported"
            )
        return self.planes[2 * layer], self.planes[2 * layer + 1]

    def _repack(self, more: int) -> None:
        """Have room for so many more blocks than are in use, which come first."""
        used = np.union1d(self.table, [0])
        needed = len(used) + more
        spare = max(needed // _SPARE, self.step)
        blocks = max(needed, min(needed + spare, self.most + 1))
        if self.planes:
            self._resize(blocks, torch.from_numpy(used).to(self.planes[0].device))
        self.blocks = blocks
        self.table = np.searchsorted(used, self.table)
        self._free = list(range(blocks - 1, len(used) - 1, -1))

    def _resize(self, blocks: int, kept: slice | Tensor) -> None:
        """Planes of so many blocks, which begin with those that are `kept`."""
        self.version += 1
        for i, old in enumerate(self.planes):
            new = old.new_zeros((blocks, old.shape[1], self.block, old.shape[3]))
            part = old[kept]
            new[: part.shape[0], :, : part.shape[2]] = part
            self.planes[i] = new


def blocks_of(tokens: Any) -> Any:
    """The number of blocks that so many tokens need, a number or an array."""
    return -(-tokens // BLOCK)


def free_bytes(device: torch.device) -> int:
    """Memory of a device that nobody uses, what torch keeps for later included; of a CPU all."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Copies:
    """Copies [m, 3] of (source block, target block, number of its first tokens)."""

    def __init__(self, copies: Ints, device: torch.device) -> None:
        self._tokens = int(copies[:, 2].max())
        packed = torch.from_numpy(copies.T.copy()).to(device)
        self._sources, self._targets, counts = packed.unbind()
        places = torch.arange(self._tokens, device=device)
        self._copied = (places < counts[:, None])[:, None, :, None]

    def make(self, plane: Tensor) -> None:
        """Make them in a plane; what a target holds beyond them stays."""
        new, old = (plane[at, :, : self._tokens] for at in (self._sources, self._targets))
        plane[self._targets, :, : self._tokens] = torch.where(self._copied, new, old)


class CacheManager:
    """Rows for at most `capacity` sessions at once; `totals` are the engine's.

    A token's keys and values take `token_bytes`, all of them at most `gib` GiB (None: a share of
    the memory that is free while there is no session).
    """

    def __init__(
        self,
        layers: int,
        capacity: int,
        totals: defaultdict[str, float],
        token_bytes: int,
        gib: float | None = None,
    ) -> None:
        self.capacity = capacity
        self.memory = KVMemory(layers)
        self.table = RowTable()
        self.most = 0
        """The blocks that all sessions may need together."""
        self._kept = 0
        self._token_bytes, self._gib = token_bytes, gib
        self._totals = totals
        self._clock = 0

    def settle(self, device: torch.device) -> None:
        """Choose the layout and the budget for a device; only while there is no session."""
        if self._gib is None:
            size = _SHARE * (free_bytes(device) + self.memory.size)
        else:
            size = self._gib * _GIB
        self.most = int(size / self._token_bytes) // BLOCK
        self._kept = self.most // _KEPT if device.type == "cuda" else 0
        too_many = self.table.tokens.size > self.most * BLOCK
        self._lay_out(paged=device.type == "cuda" or too_many)

    def too_long(self, tokens: int) -> str | None:
        """The reason why so many tokens never fit, or None."""
        if blocks_of(tokens) <= self.most:
            return None
        size, held = tokens * self._token_bytes / _GIB, self.most * BLOCK
        return (
            f"keys and values of {tokens} tokens take {size:.3g} GiB, and the engine has room for "
            f"{held} tokens (engine.cache_gib)"
        )

    @property
    def sessions(self) -> int:
        """Number of sessions that have a cache."""
        return len(self.table.row_of)

    def acquire(self, session_id: str, limit: int, waiting: int) -> int | None:
        """A row of at least `limit` tokens with the session's cache; None if there is no room.

        `waiting` is the total number of requests that want a row; it decides how much to grow.
        """
        table = self.table
        if table.active.sum() >= self.capacity or not self._make_room(session_id, limit):
            return None
        if limit > self.memory.length:  # doubled, so that copying is amortized
            self._grow(len(table), blocks_of(max(limit, 2 * self.memory.length)) * BLOCK)
        if session_id not in table.row_of:
            table.give(self._vacant_row(waiting), session_id)
        return table.row_of[session_id]

    def _make_room(self, session_id: str, limit: int) -> bool:
        """Whether so many tokens of a session fit beside what others hold or may come to need,
        after the caches of idle ones were dropped where they were in the way."""
        table = self.table
        own = table.row_of.get(session_id)
        while True:
            blocks = blocks_of(np.where(table.active, table.limit, table.cached))
            blocks[[] if own is None else own] = 0
            if blocks.sum() + blocks_of(limit) <= self.most:
                return True
            idle = np.flatnonzero(~table.active & (blocks > 0))
            if not len(idle):
                return False
            self._evict(idle)

    def begin(self, row: int, request: GenerationRequest, context: Ints, limit: int) -> None:
        """Start sampling `request` in `row`, up to `limit` tokens in total."""
        table = self.table
        reused = table.open(row, context, request.sampling, request.seed, request.sampled_before)
        table.limit[row] = limit
        self.memory.keep(row, reused)
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

    def forget(self, session_id: str, *, wipes: bool = False) -> None:
        """Free the session's row if it has one; `wipes` sets its keys and values to 0."""
        row = self.table.row_of.get(session_id)
        if row is None:
            return
        if wipes:
            self.memory.wipe(row)
        self._free(row)

    def _free(self, row: int) -> None:
        self.table.free(row)
        self.memory.keep(row, 0)

    def clear(self, device: torch.device | None = None, others: int = 0) -> None:
        """Drop all keys and values. Rows being sampled keep their tokens and read them again.

        Memory on `device` stays, if there are sessions, or if it is little, `others` bytes beside
        it included.
        """
        self.table.cached[:] = 0
        self.table.source[:] = -1
        memory = self.memory
        little = memory.size + others <= self._kept * BLOCK * self._token_bytes
        here = memory.paged and {plane.device for plane in memory.planes} == {device}
        memory.clear(keeps=bool(here and self._kept and (little or self.sessions)))

    def _grow(self, rows: int, length: int) -> None:
        self.table.grow(rows, length)
        if rows * length > self.most * BLOCK and not self.memory.paged:
            self.clear()
            self._lay_out(paged=True)  # slower to read on a CPU, but it holds what is needed only
        self.memory.grow(rows, length)

    def _lay_out(self, *, paged: bool) -> None:
        if paged != self.memory.paged:
            self.memory = KVMemory(self.memory.layers, paged=paged)
            self.memory.grow(*self.table.tokens.shape)
        self.memory.most, self.memory.step = self.most, _STEP // (self._token_bytes * BLOCK)
        self.memory.kept = self._kept

    def _evict(self, idle: Ints) -> int:
        """Free that one of the rows whose session was admitted first."""
        row = int(idle[self.table.order[idle].argmin()])
        self._totals["evictions"] += bool(self.table.cached[row])
        self._free(row)
        return row

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
        return self._evict(np.flatnonzero(~table.active))
