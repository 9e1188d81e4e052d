"""Attention of one packed forward pass over rows of the cache.

A pass packs the new tokens of all its sequences into one of N tokens, so that linear layers
need no padding. Only attention distinguishes sequences: those that read equally many tokens (one,
while decoding) attend together as a group, each with its own row of the cache. The model is an
unmodified Hugging Face one: transformers allows registering an attention function by name.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from agentsgym.types.rows import Ints

ATTENTION_NAME = "agentsgym_packed"

_VIEW_DENSITY = 0.5  # below it, copying the rows costs less than attending over unused rows
_MOST_FOLDED = 256  # positions; beyond, a mask for all heads takes more than copies of the keys
ROUND_KEYS = 16  # key counts are rounded up, so that shapes repeat and kernels stay aligned


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """What a layer's attention does besides reading all earlier keys.

    `scale` multiplies the products (None: 1 / sqrt(dim)); a query sees the last `window` keys, its
    own among them (None: all); `cap` squeezes scaled products into (-cap, cap) by tanh; `sinks`
    [heads] are logits of a key without a value; `dropout` is the chance that a key is left out.
    """

    scale: float | None = None
    window: int | None = None
    cap: float | None = None
    sinks: Tensor | None = None
    dropout: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether torch's own attention computes it."""
        return self.cap is None and self.sinks is None


class AttentionGroup:
    """Sequences of one pass that attend together, padded to the longest of their chunks.

    `rows` [n] ascending, `starts` [n] (tokens cached before) and `chunks` [n] (tokens read now)
    describe the sequences; their tokens begin at `first` in the packed pass. `length` is the
    memory's row length. `causal`: query i reads keys 0 to i, for which torch needs no mask.
    """

    def __init__(
        self, rows: Ints, starts: Ints, chunks: Ints, first: int, length: int, device: torch.device
    ) -> None:
        total = int(chunks.sum())
        self.tokens = slice(first, first + total)
        self.width = int(chunks.max())
        ends = starts + chunks
        self.keys = min(length, -(-int(ends.max()) // ROUND_KEYS) * ROUND_KEYS)
        self.first_row = int(rows[0])
        span = int(rows[-1]) + 1 - self.first_row
        dense = len(rows) >= _VIEW_DENSITY * span
        self.count = span if dense else len(rows)
        self.rows = None if dense else torch.from_numpy(rows).to(device)
        offsets = rows - self.first_row if dense else np.arange(len(rows))
        positions = np.zeros((self.count, self.width), dtype=np.int64)
        # Padding stands where the chunk ends: a query beyond all keys in its window would be NaN.
        positions[offsets] = np.minimum(starts[:, None] + np.arange(self.width), ends[:, None] - 1)
        self.positions = torch.from_numpy(positions).to(device)
        self.grid: Tensor | None = None
        if total != self.count * self.width:
            within = np.arange(total) - np.repeat(np.cumsum(chunks) - chunks, chunks)
            grid = np.repeat(offsets * self.width, chunks) + within
            self.grid = torch.from_numpy(grid).to(device)
        self.causal = False
        self._masks: dict[tuple[int | None, torch.dtype, int], Tensor] = {}

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, layer: LayerAttention
    ) -> Tensor:
        """Queries [tokens, heads, dim] over the layer's planes, [tokens, heads, dim]."""
        _, heads, size = queries.shape
        if self.grid is not None:
            padded = queries.new_zeros((self.count * self.width, heads, size))
            queries = padded.index_copy_(0, self.grid, queries)
        key, value = self._select(keys), self._select(values)
        causal = self.causal and layer.window is None and layer.is_plain
        shared = heads // key.shape[1]
        folds = layer.is_plain and self._is_folded(shared, queries, causal)
        mask = None
        if not causal or folds:
            mask = self._additive_mask(layer.window, queries.dtype, shared if folds else 1)
        queries = queries.reshape(self.count, self.width, heads, size)
        if layer.is_plain:
            out = _torch_attention(queries, key, value, mask, layer, folds)
        else:
            out = _own_attention(queries, key, value, mask, layer)
        out = out.reshape(self.count * self.width, heads, out.shape[-1])
        return out if self.grid is None else out.index_select(0, self.grid)

    def _select(self, plane: Tensor) -> Tensor:
        """This group's rows, up to its longest sequence: [count, kv_heads, keys, dim]."""
        if self.rows is None:
            return plane[self.first_row : self.first_row + self.count, :, : self.keys]
        return plane[self.rows, :, : self.keys]

    def _is_folded(self, shared: int, queries: Tensor, causal: bool) -> bool:
        """Whether the `shared` query heads of a key head take the place of positions, as its keys
        would be copied otherwise; not for so many positions that the mask would take more."""
        if self.width == 1 and not causal:
            return True
        return self.width <= _MOST_FOLDED and not _shares_keys(queries, shared, masked=not causal)

    def _additive_mask(self, window: int | None, dtype: torch.dtype, folded: int = 1) -> Tensor:
        """0 where a query sees a key, else -inf: [count, 1, folded * width, keys], and of a single
        position [count, 1, 1, keys]; made once per pass."""
        folded = 1 if self.width == 1 else folded
        mask = self._masks.get((window, dtype, folded))
        if mask is None:
            hidden = self._hidden(window)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            mask = mask.masked_fill_(hidden, -torch.inf)
            if folded > 1:
                mask = mask.repeat(1, 1, folded, 1)
            self._masks[window, dtype, folded] = mask
        return mask

    def _hidden(self, window: int | None) -> Tensor:
        """The keys that a query does not see, [count, 1, width, keys]."""
        keys = torch.arange(self.keys, device=self.positions.device)
        positions = self.positions[:, None, :, None]
        hidden = keys > positions
        if window is not None:
            hidden |= keys <= positions - window
        return hidden


class BlockGroup(AttentionGroup):
    """Sequences whose rows are blocks of `block` tokens, which `table` [n, most] names; they are
    copied for each layer, up to the longest sequence."""

    def __init__(
        self,
        table: Ints,
        block: int,
        starts: Ints,
        chunks: Ints,
        first: int,
        device: torch.device,
    ) -> None:
        count = -(-int((starts + chunks).max()) // block)
        self._table = torch.from_numpy(table[:, :count]).to(device)
        super().__init__(np.arange(len(table)), starts, chunks, first, count * block, device)
        self.keys = count * block
        self._index: Tensor | None = None

    def _select(self, plane: Tensor) -> Tensor:
        """The rows' keys or values, [n, kv_heads, keys, dim], of [blocks, kv_heads, block, dim]."""
        _, kv_heads, block, size = plane.shape
        if self._index is None:
            heads = torch.arange(kv_heads, device=plane.device)[:, None]
            self._index = (self._table[:, None] * kv_heads + heads).flatten()
        blocks = plane.view(-1, block, size).index_select(0, self._index)
        return blocks.view(self.count, kv_heads, self.keys, size)


class TreeGroup(AttentionGroup):
    """Tokens of one tree, from `first` on in the packed pass, the last n of the k in its memory, at
    `blocks` and `places` [k]. Each sees those that `seen` [n, k] says; `depths` [k] are the
    positions in their sequences."""

    def __init__(
        self,
        blocks: Ints,
        places: Ints,
        seen: npt.NDArray[np.bool_],
        depths: Ints,
        first: int,
        device: torch.device,
    ) -> None:
        self.count, self.width, self.grid, self.causal = 1, len(seen), None, False
        self.tokens = slice(first, first + len(seen))
        self._at = tuple(torch.from_numpy(np.stack((blocks, places))).to(device))
        self._unseen = torch.from_numpy(~seen).to(device)
        self._depths = torch.from_numpy(depths).to(device)
        self._masks = {}

    def _select(self, plane: Tensor) -> Tensor:
        """The tree's keys or values, [1, kv_heads, k, dim]."""
        blocks, places = self._at
        return plane[blocks, :, places].transpose(0, 1)[None]

    def _hidden(self, window: int | None) -> Tensor:
        hidden = self._unseen
        if window is not None:
            own = self._depths[-self.width :, None]
            hidden = hidden | (self._depths <= own - window)
        return hidden[None, None]


class FamilyGroup(AttentionGroup):
    """Sequences that decode and begin with the same `prefix` tokens, whose keys and values are read
    once for all of them, from the first one's row."""

    def __init__(
        self, rows: Ints, starts: Ints, prefix: int, first: int, length: int, device: torch.device
    ) -> None:
        chunks = np.ones_like(starts)
        super().__init__(np.arange(len(rows)), starts, chunks, first, length, device)
        self._prefix = prefix
        self._first = int(rows[0])
        last = int(rows[-1])
        adjacent = len(rows) == last + 1 - self._first
        self._rows = slice(self._first, last + 1) if adjacent else torch.from_numpy(rows).to(device)

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, layer: LayerAttention
    ) -> Tensor:
        """Queries [tokens, heads, dim] over the layer's planes, [tokens, heads, dim]."""
        count, heads, size = queries.shape
        kv_heads, prefix = keys.shape[1], self._prefix
        grouped = queries.view(count, kv_heads, -1, size)
        by_head = grouped.transpose(0, 1).reshape(kv_heads, -1, size)
        to_prefix = torch.matmul(by_head, keys[self._first, :, :prefix].transpose(-1, -2))
        to_prefix = to_prefix.view(kv_heads, count, -1, prefix).transpose(0, 1)
        own = keys[self._rows, :, prefix : self.keys].transpose(-1, -2)
        products = torch.cat((to_prefix, torch.matmul(grouped, own)), dim=-1)[:, :, :, None]
        mask = self._additive_mask(layer.window, queries.dtype)
        shares = _shares(products, mask, size, layer)[:, :, :, 0].to(values.dtype)
        of_prefix = shares[..., :prefix].transpose(0, 1).reshape(kv_heads, -1, prefix)
        out = torch.matmul(of_prefix, values[self._first, :, :prefix])
        out = out.view(kv_heads, count, -1, out.shape[-1]).transpose(0, 1)
        out = out + torch.matmul(shares[..., prefix:], values[self._rows, :, prefix : self.keys])
        return out.reshape(count, heads, -1)


def _shares_keys(queries: Tensor, shared: int, *, masked: bool) -> bool:
    """Whether torch's kernels read a key once for the `shared` query heads that have it: on GPUs in
    16 bits and without a mask."""
    on_cpu = queries.device.type == "cpu"
    return shared == 1 or on_cpu or (queries.itemsize == 2 and not masked)


def _torch_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    layer: LayerAttention,
    folds: bool,
) -> Tensor:
    """Query [count, width, heads, dim]; key, value [count, kv_heads, keys, dim]; without a mask,
    query i reads keys 0 to i. If it `folds`, the mask has a row for each head of a key's, too."""

    def attend(queries: Tensor) -> Tensor:
        return scaled_dot_product_attention(
            queries,
            key,
            value,
            attn_mask=mask,
            dropout_p=layer.dropout,
            is_causal=mask is None,
            scale=layer.scale,
            enable_gqa=queries.shape[1] != key.shape[1],
        )

    count, width, heads, size = query.shape
    shape = count, key.shape[1], heads // key.shape[1], width
    grouped = query.reshape(count, width, *shape[1:3], size).permute(0, 2, 3, 1, 4)
    if folds:
        out = attend(grouped.flatten(2, 3)).reshape(*shape, -1)
    elif _shares_keys(query, shape[2], masked=mask is not None):
        out = attend(grouped.flatten(1, 2)).reshape(*shape, -1)
    else:
        out = torch.stack([attend(part) for part in grouped.unbind(2)], dim=2)
    return out.permute(0, 3, 1, 2, 4).flatten(2, 3)


def _own_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, layer: LayerAttention
) -> Tensor:
    """As `_torch_attention`, with soft-capped products and sinks."""
    count, width, heads, size = query.shape
    kv_heads = key.shape[1]
    grouped = query.reshape(count, width, kv_heads, heads // kv_heads, size).permute(0, 2, 3, 1, 4)
    assert mask is not None
    products = torch.matmul(grouped, key[:, :, None].transpose(-1, -2))
    shares = _shares(products, mask, size, layer).to(value.dtype)
    out = torch.matmul(shares, value[:, :, None])
    return out.permute(0, 3, 1, 2, 4).reshape(count, width, heads, -1)


def _shares(products: Tensor, mask: Tensor, size: int, layer: LayerAttention) -> Tensor:
    """How much of each value a query takes, of the shape of `products` of queries and keys of
    `size` numbers: [count, kv_heads, heads per kv_head, width, keys]; the softmax is in float32."""
    scores = products * (size**-0.5 if layer.scale is None else layer.scale)
    if layer.cap is not None:
        scores = torch.tanh(scores / layer.cap) * layer.cap
    scores = (scores + mask[:, :, None]).float()
    if layer.sinks is not None:
        count, kv_heads, group, width, _ = scores.shape
        sinks = layer.sinks.float().reshape(1, kv_heads, group, 1, 1)
        scores = torch.cat((scores, sinks.expand(count, -1, -1, width, -1)), dim=-1)
    shares = scores.softmax(-1)[..., : products.shape[-1]]
    return torch.dropout(shares, layer.dropout, layer.dropout > 0)


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    packed_groups: Sequence[AttentionGroup] = (),
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: `query` [1, heads, N, dim] over the planes that the
    groups read, those of `PassCache` or the pass's own keys and values [1, kv_heads, N, dim].

    Returns [1, N, heads, dim]. Window, soft cap, sinks (`s_aux`) and dropout are the layer's.
    """
    if not packed_groups:
        raise RuntimeError("the model does not pass its keyword arguments to its attention")
    packed = query[0].transpose(0, 1)
    layer = LayerAttention(scaling, sliding_window, softcap, s_aux, dropout)
    outputs = [group.attend(packed[group.tokens], key, value, layer) for group in packed_groups]
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs))[None], None


@contextmanager
def packed_attention_on(config: Any) -> Iterator[None]:
    """Let the model of `config` attend in packed passes; restore its own attention afterwards.

    Raises RuntimeError if somebody else, in another thread, is running the model right now.
    """
    config = config.get_text_config()  # parts for images keep theirs
    before = config._attn_implementation
    if before == ATTENTION_NAME:
        raise RuntimeError(
            "another EmbeddedEngine, or a trainer, is running this model in another thread; give "
            "each its own copy, or let them take turns"
        )
    config._attn_implementation = ATTENTION_NAME
    try:
        yield
    finally:
        config._attn_implementation = before


AttentionInterface.register(ATTENTION_NAME, packed_attention)
