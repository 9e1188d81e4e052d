"""The KV memory: of resident sessions one row each, written and read by index, and the caches of
sessions that have no row: moved out of the batch, or dropped for want of memory.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from agentsgym.types.records import Ints


class SlotMemory:
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

    def resize(self, rows: int, length: int, order: Tensor | None = None) -> None:
        """Change the shape; new row i continues old row `order[i]` (None: the same row)."""
        if order is not None or (rows, length) != (self.rows, self.length):
            kept = min(length, self.length)
            for i, old in enumerate(self.planes):
                new = old.new_zeros((rows, old.shape[1], length, old.shape[3]))
                if order is None:
                    count = min(rows, self.rows)
                    new[:count, :, :kept] = old[:count, :, :kept]
                else:
                    new[: len(order), :, :kept] = old[order.to(old.device), :, :kept]
                self.planes[i] = new
        self.rows, self.length = rows, length

    def permute(self, order: Tensor) -> None:
        """New row i is old row `order[i]`."""
        if not self.planes:
            return
        order = order.to(self.planes[0].device)
        spare = torch.empty_like(self.planes[0])
        for i, plane in enumerate(self.planes):
            torch.index_select(plane, 0, order, out=spare)
            self.planes[i], spare = spare, plane

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
            self._allocate(like.shape[1], like)
        if values.shape != like.shape or like.shape[1::2] != self.planes[0].shape[1::2]:
            raise ValueError(
                f"layer {layer} has keys {tuple(like.shape)} and values {tuple(values.shape)}: "
                "layers of different shapes are not supported"
            )
        return self.planes[2 * layer], self.planes[2 * layer + 1]

    def extract(self, row: int, length: int) -> Tensor:
        """A copy of a row's first `length` tokens: [2 x layers, kv_heads, length, head_dim]."""
        return torch.stack([plane[row, :, :length] for plane in self.planes])

    def insert(self, row: int, content: Tensor) -> None:
        """Write a result of `extract` to the start of a row."""
        if not self.planes:
            self._allocate(content.shape[1], content)
        for plane, part in zip(self.planes, content, strict=True):
            plane[row, :, : part.shape[1]] = part

    def _allocate(self, heads: int, like: Tensor) -> None:
        """Zeros for `heads` key heads, in the dtype, device and head size of `like` [..., dim]."""
        shape = (self.rows, heads, self.length, like.shape[-1])
        self.planes = [like.new_zeros(shape) for _ in range(2 * self.layers)]


class SlotCache(Cache):  # type: ignore[misc]  # transformers is untyped here
    """The cache that the model's attention layers write to: one pass's view of the memory.

    A model sees the pass as one sequence of N packed tokens, [1, kv_heads, N, head_dim].
    """

    def __init__(self, memory: SlotMemory, rows: Tensor, positions: Tensor) -> None:
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
