"""The KV memory of all resident sessions: one row per session, written and read by index."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

from agentsgym.generation.support import UnsupportedModelError


class SlotMemory:
    """Keys and values of `rows` sessions of up to `length` tokens each.

    Storage is one tensor [2 x layers, rows, kv_heads, length, head_dim] (keys at even, values at
    odd planes), made when the first key arrives since only that tells its shape and dtype. It is
    made of zeros: unwritten places are masked, but 0 x NaN would still be NaN.
    """

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.rows = 0
        self.length = 0
        self.storage: Tensor | None = None

    def resize(self, rows: int, length: int, order: Tensor | None = None) -> None:
        """Change the shape; new row i continues old row `order[i]` (None: the same row)."""
        old = self.storage
        if old is not None and (order is not None or (rows, length) != (self.rows, self.length)):
            new = old.new_zeros((old.shape[0], rows, old.shape[2], length, old.shape[4]))
            kept = min(length, self.length)
            if order is None:
                count = min(rows, self.rows)
                new[:, :count, :, :kept] = old[:, :count, :, :kept]
            else:
                new[:, : len(order), :, :kept] = old[:, order.to(old.device), :, :kept]
            self.storage = new
        self.rows, self.length = rows, length

    def permute(self, order: Tensor, used: int) -> None:
        """New row i is old row `order[i]`; only the first `used` tokens of rows are kept."""
        if self.storage is None:
            return
        order = order.to(self.storage.device)
        for plane in self.storage[..., :used, :]:  # one at a time, for the sake of memory
            plane.copy_(plane[order])

    def clear(self) -> None:
        """Free the storage; the shape stays."""
        self.storage = None

    def wipe(self, row: int) -> None:
        """Zero a row."""
        if self.storage is not None:
            self.storage[:, row].zero_()

    def planes(self, layer: int, like: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, each [rows, kv_heads, length, head_dim]."""
        if self.storage is None:
            self.storage = self._allocate(like)
        if values.shape != like.shape or like.shape[1::2] != self.storage.shape[2::2]:
            raise UnsupportedModelError(
                f"layer {layer} has keys {tuple(like.shape)} and values {tuple(values.shape)}: "
                "layers of different shapes are not supported"
            )
        return self.storage[2 * layer], self.storage[2 * layer + 1]

    def extract(self, row: int, length: int) -> Tensor:
        """A copy of a row's first `length` tokens: [2 x layers, kv_heads, length, head_dim]."""
        assert self.storage is not None
        return self.storage[:, row, :, :length].clone()

    def insert(self, row: int, content: Tensor) -> None:
        """Write what `extract` gave into the start of a row."""
        if self.storage is None:
            self.storage = self._allocate(content[:1])
        self.storage[:, row, :, : content.shape[2]] = content

    def _allocate(self, like: Tensor) -> Tensor:
        """Zeros in the dtype, device, heads and head size of `like` [1, kv_heads, n, head_dim]."""
        shape = (2 * self.layers, self.rows, like.shape[1], self.length, like.shape[3])
        return like.new_zeros(shape)


class SlotCache(Cache):  # type: ignore[misc]  # transformers is untyped here
    """What the model's attention layers write to: one pass's view of the memory.

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
        """Let rows `targets` begin with the first `length` tokens of rows `sources`."""
        self.copy_from, self.copy_to, self.copy_length = sources, targets, length

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the pass's N tokens to their rows; return the layer's whole keys and values."""
        planes = self.memory.planes(layer_idx, key_states, value_states)
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
