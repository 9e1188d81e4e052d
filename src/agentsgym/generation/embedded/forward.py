"""One forward pass: the number of tokens that each row reads, the cache that the model writes to,
its head, and the model call."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from agentsgym.generation.embedded.attention import AttentionGroup, BlockGroup, FamilyGroup
from agentsgym.generation.embedded.batch import RowTable
from agentsgym.generation.embedded.kv_cache import Copies, KVMemory, blocks_of
from agentsgym.generation.models import without_adapter
from agentsgym.types.rows import Ints

FAMILY_PAYS_FROM = 2048
"""Keys that decoding rows with a common prefix need not read again, from which they attend over it
together."""


@dataclass(frozen=True, slots=True)
class PassPlan:
    """Rows [n] of one pass, in the order in which their tokens are packed.

    Row i has `starts[i]` tokens cached and reads the next `chunks[i]`; `finished[i]` says whether
    it has then read all its tokens. Rows with the same `buckets[i]` are adjacent and attend
    together; those of a bucket below 0 decode and begin with the same `prefixes[i]` tokens.
    `copies` [m, 3] are (source row, target row, tokens): the part of another row's prompt that a
    row copies before it reads.
    """

    rows: Ints
    starts: Ints
    chunks: Ints
    buckets: Ints
    prefixes: Ints
    finished: npt.NDArray[np.bool_]
    copies: Ints


def plan_pass(table: RowTable, memory: KVMemory, budget: int) -> PassPlan:
    """The tokens that the active rows read next, for which the memory gets room.

    At most `budget` tokens of prompts and observations are read, the longest-waiting rows first;
    rows with a single token to read (all that are decoding) always take part. A row that waits
    for a copy takes part once its source has read the copied tokens, or reads them in this pass.
    """
    rows = np.flatnonzero(table.active)
    starts = table.cached[rows]
    needs = table.known[rows] - starts
    awaiting = table.source[rows] >= 0
    copies: list[tuple[int, int, int]] = []
    chunks = _within_budget(np.where(awaiting, 0, needs), table.order[rows], budget)
    if awaiting.any():
        reached = table.cached.copy()
        reached[rows] += chunks
        for i in np.flatnonzero(awaiting):
            row = int(rows[i])
            source, shared = int(table.source[row]), int(table.shared[row])
            possible = _can_copy(table, source, row, shared)
            if possible and reached[source] < shared:
                continue
            if possible:
                copies.append((source, row, shared))
                starts[i], needs[i] = shared, table.known[row] - shared
            chunks[i] = min(needs[i], max(1, budget - int(chunks[chunks > 1].sum())))
    memory.fit(rows[chunks > 0], (starts + chunks)[chunks > 0])
    return _packed(table, memory.paged, rows, starts, needs, chunks, copies)


def _within_budget(needs: Ints, order: Ints, budget: int) -> Ints:
    """How many tokens of its `needs` each row may read; single tokens are free."""
    chunks = needs.copy()
    queue = np.flatnonzero(needs > 1)
    queue = queue[np.argsort(order[queue], kind="stable")]
    before = np.cumsum(needs[queue]) - needs[queue]
    chunks[queue] = np.clip(budget - before, 0, needs[queue])
    return chunks


def _can_copy(table: RowTable, source: int, row: int, shared: int) -> bool:
    """Whether `source` has, or is about to read, the tokens that `row` wants to copy."""
    held = table.known[source] if table.active[source] else table.cached[source]
    if held < shared or table.source[source] >= 0:
        return False
    return bool((table.tokens[source, :shared] == table.tokens[row, :shared]).all())


def _packed(
    table: RowTable,
    paged: bool,
    rows: Ints,
    starts: Ints,
    needs: Ints,
    chunks: Ints,
    copies: list[tuple[int, int, int]],
) -> PassPlan:
    """Drop rows that read nothing, and put rows with similar chunks together.

    Buckets are powers of two, so that padding within one at most doubles its attention. Rows of a
    family that decode are a bucket of their own, if reading its prefix once saves enough. Rows in
    blocks are read by copying them, up to the longest of a bucket, so that lengths are alike, too.
    """
    buckets = exponents(chunks)
    if paged:
        buckets += 64 * exponents(blocks_of(starts + chunks))
    decoding = (
        ~np.bool_(paged)
        & (chunks == 1)
        & (table.family[rows] >= 0)
        & (starts >= table.prefix[rows])
    )
    families, members = np.unique(table.family[rows[decoding]], return_counts=True)
    for family, number in zip(families, members, strict=True):
        own = decoding & (table.family[rows] == family)
        if (number - 1) * int(table.prefix[rows[own]][0]) >= FAMILY_PAYS_FROM:
            buckets[own] = -1 - family
    order = np.argsort(buckets, kind="stable")
    order = order[chunks[order] > 0]
    finished = (chunks == needs)[order]
    shared = np.array(copies, dtype=np.int64).reshape(-1, 3)
    return PassPlan(
        rows[order],
        starts[order],
        chunks[order],
        buckets[order],
        table.prefix[rows[order]],
        finished,
        shared,
    )


def exponents(values: Ints) -> Ints:
    """Of each number the exponent of the smallest power of two that is not less."""
    return np.ceil(np.log2(np.maximum(values, 1))).astype(np.int64)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; both are restored afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


class PassCache(Cache):  # type: ignore[misc]  # transformers is untyped here
    """The cache that the model's attention layers write to: one pass's view of the memory.

    A model sees the pass as one sequence of N packed tokens, [1, kv_heads, N, head_dim]. Rows may
    copy what others read in it.
    """

    def __init__(
        self, memory: KVMemory, blocks: Tensor, places: Tensor, copies: Copies | None = None
    ) -> None:
        super().__init__(layers=[])
        self._memory, self._blocks, self._places = memory, blocks, places
        self._copies = copies

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the pass's N tokens to their blocks; return the layer's whole keys and values."""
        planes = self._memory.of_layer(layer_idx, key_states, value_states)
        for plane, states in zip(planes, (key_states, value_states), strict=True):
            plane[self._blocks, :, self._places] = states[0].transpose(0, 1).to(plane.dtype)
            if self._copies is not None:
                self._copies.make(plane)
        return planes


def run_pass(
    model: Any, memory: KVMemory, table: RowTable, plan: PassPlan, device: torch.device
) -> Tensor:
    """Read the plan's tokens; float32 logits [finished rows, vocab] at each finished row's end."""
    rows = np.repeat(plan.rows, plan.chunks)
    ends = np.cumsum(plan.chunks)
    positions = np.arange(len(rows)) + np.repeat(plan.starts - (ends - plan.chunks), plan.chunks)
    packed = np.stack((table.tokens[rows, positions], positions, *memory.address(rows, positions)))
    ids, position_ids, blocks, places = torch.from_numpy(packed).to(device).unbind()
    copies = memory.copies(plan.copies, device) if len(plan.copies) else None
    last = (ends - 1)[plan.finished]
    keep: int | Tensor = 0  # all
    if len(last) < len(rows):
        keep = torch.from_numpy(last if len(last) else ends[-1:] - 1).to(device)
    output = model(
        input_ids=ids[None],
        position_ids=position_ids[None],
        past_key_values=PassCache(memory, blocks, places, copies),
        use_cache=True,
        logits_to_keep=keep,
        packed_groups=list(_groups(plan, memory, device)),
    )
    logits: Tensor = output.logits[0, : len(last)].float()
    table.cached[plan.rows] = plan.starts + plan.chunks
    table.source[plan.rows] = -1
    return logits


def _groups(plan: PassPlan, memory: KVMemory, device: torch.device) -> Iterator[AttentionGroup]:
    first, length = 0, memory.length
    edges = np.flatnonzero(np.diff(plan.buckets)) + 1
    for bucket in np.split(np.arange(len(plan.rows)), edges):
        rows, starts, chunks = (c[bucket] for c in (plan.rows, plan.starts, plan.chunks))
        if memory.paged:
            yield BlockGroup(memory.read_by(rows), memory.block, starts, chunks, first, device)
        elif plan.buckets[bucket[0]] < 0:
            yield FamilyGroup(rows, starts, int(plan.prefixes[bucket[0]]), first, length, device)
        else:
            yield AttentionGroup(rows, starts, chunks, first, length, device)
        first += int(chunks.sum())


def is_of_device(error: Exception) -> bool:
    """Whether an error of a forward pass comes from the device, and says nothing about the model:
    it has no memory left or failed, or tensors are on several."""
    failed = getattr(torch, "AcceleratorError", torch.OutOfMemoryError)
    mixed = "on the same device" in str(error)
    return isinstance(error, failed) or mixed or is_out_of_memory(error)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that a GPU, or the CPU, has no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


@contextmanager
def head_over(model: Any, ids: Tensor | None = None) -> Iterator[None]:
    """Inside the block `model`, a causal language model (with an adapter or not), gives the logits
    of `ids` [U] only, [..., U] (None: all), with its own scales and soft caps. They are float32
    (float64 in a model of float64), whatever the type of its weights, also within autocast."""
    head = without_adapter(model).get_output_embeddings()
    plain = type(head) is nn.Linear and "forward" not in vars(head)
    whole = head.forward

    def forward(hidden: Tensor) -> Tensor:
        if not plain:  # an adapter's, or one that is quantized
            logits = whole(hidden)
            return _wide(logits if ids is None else logits.index_select(-1, ids.to(logits.device)))
        at = slice(None) if ids is None else ids.to(head.weight.device)
        bias = None if head.bias is None else _wide(head.bias[at])
        with torch.autocast(hidden.device.type, enabled=False):
            return nn.functional.linear(_wide(hidden), _wide(head.weight[at]), bias)

    head.forward = forward
    try:
        yield
    finally:
        if plain:
            del head.forward
        else:
            head.forward = whole


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
