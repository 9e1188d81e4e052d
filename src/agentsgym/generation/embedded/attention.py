"""Attention of one packed forward pass over rows of the cache.

A pass packs the new tokens of all its sequences into one row of N tokens, so that linear layers
need no padding. Only attention distinguishes sequences: those that read equally many tokens (one,
while decoding) attend together as a group, each with its own row of the cache. The model is an
unmodified Hugging Face one: transformers allows registering an attention function by name.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from agentsgym.types.arrays import Ints

ATTENTION_NAME = "agentsgym_slots"

_VIEW_DENSITY = 0.5  # below it, copying the rows costs less than attending over unused rows
_ROUND_KEYS = 16  # key counts are rounded up, so that shapes repeat and kernels stay aligned


class AttentionGroup:
    """Sequences of one pass that attend together, padded to the longest of their chunks.

    `rows` [n] ascending, `starts` [n] (tokens cached before) and `chunks` [n] (tokens read now)
    describe the sequences; their tokens begin at `first` in the packed pass. `length` is the
    memory's row length.
    """

    def __init__(
        self, rows: Ints, starts: Ints, chunks: Ints, first: int, length: int, device: torch.device
    ) -> None:
        total = int(chunks.sum())
        self.tokens = slice(first, first + total)
        self.width = int(chunks.max())
        ends = starts + chunks
        self.keys = min(length, -(-int(ends.max()) // _ROUND_KEYS) * _ROUND_KEYS)
        self.first_row = int(rows[0])
        span = int(rows[-1]) + 1 - self.first_row
        dense = len(rows) >= _VIEW_DENSITY * span
        self.count = span if dense else len(rows)
        self.rows = None if dense else torch.from_numpy(rows).to(device)
        offsets = rows - self.first_row if dense else np.arange(len(rows))
        positions = np.zeros((self.count, self.width), dtype=np.int64)
        positions[offsets] = starts[:, None] + np.arange(self.width)
        self.positions = torch.from_numpy(positions).to(device)
        self.grid: Tensor | None = None
        if total != self.count * self.width:
            within = np.arange(total) - np.repeat(np.cumsum(chunks) - chunks, chunks)
            grid = np.repeat(offsets * self.width, chunks) + within
            self.grid = torch.from_numpy(grid).to(device)
        self._mask: Tensor | None = None

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """Queries [tokens, heads, dim] over the layer's planes, [tokens, heads, dim]."""
        _, heads, size = queries.shape
        if self.grid is not None:
            padded = queries.new_zeros((self.count * self.width, heads, size))
            queries = padded.index_copy_(0, self.grid, queries)
        key, value = self._select(keys), self._select(values)
        mask = self._additive_mask(queries.dtype)
        queries = queries.reshape(self.count, self.width, heads, size)
        out = self._scaled(queries, key, value, mask, scale)
        out = out.reshape(self.count * self.width, heads, out.shape[-1])
        return out if self.grid is None else out.index_select(0, self.grid)

    def _scaled(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None
    ) -> Tensor:
        """Query [count, width, heads, dim]; key, value [count, kv_heads, keys, dim]."""
        count, width, heads, size = query.shape
        kv_heads = key.shape[1]
        if width == 1:
            # The query heads that share a key head take the place of several positions.
            grouped = query.reshape(count, kv_heads, heads // kv_heads, size)
            return scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scale)
        if kv_heads != heads:
            key = key.repeat_interleave(heads // kv_heads, dim=1)
            value = value.repeat_interleave(heads // kv_heads, dim=1)
        out = scaled_dot_product_attention(
            query.transpose(1, 2), key, value, attn_mask=mask, scale=scale
        )
        return out.transpose(1, 2)

    def _select(self, plane: Tensor) -> Tensor:
        """This group's rows, up to its longest sequence: [count, kv_heads, keys, dim]."""
        if self.rows is None:
            return plane[self.first_row : self.first_row + self.count, :, : self.keys]
        return plane[self.rows, :, : self.keys]

    def _additive_mask(self, dtype: torch.dtype) -> Tensor:
        """0 where a query sees a key, else -inf: [count, 1, width, keys]; made once per pass."""
        if self._mask is None or self._mask.dtype != dtype:
            keys = torch.arange(self.keys, device=self.positions.device)
            hidden = keys > self.positions[:, None, :, None]
            self._mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            self._mask.masked_fill_(hidden, -torch.inf)
        return self._mask


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    slot_groups: Sequence[AttentionGroup] = (),
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: `query` [1, heads, N, dim] over `SlotCache`'s planes.

    Returns [1, N, heads, dim]. Dropout is ignored: this runs in evaluation mode only.
    """
    if not slot_groups:
        raise RuntimeError("the model does not pass its keyword arguments to its attention")
    packed = query[0].transpose(0, 1)
    outputs = [group.attend(packed[group.tokens], key, value, scaling) for group in slot_groups]
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs))[None], None


@contextmanager
def slot_attention_on(config: Any) -> Iterator[None]:
    """Let the model of `config` attend through the slots; restore its own attention afterwards.

    Raises RuntimeError if another engine, in another thread, is running the model right now.
    """
    before = config._attn_implementation
    if before == ATTENTION_NAME:
        raise RuntimeError(
            "another EmbeddedEngine is sampling from this model in another thread; give each "
            "engine its own copy, or let them take turns"
        )
    config._attn_implementation = ATTENTION_NAME
    try:
        yield
    finally:
        config._attn_implementation = before


AttentionInterface.register(ATTENTION_NAME, slot_attention)
