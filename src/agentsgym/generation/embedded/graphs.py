"""Passes of a fixed size as CUDA graphs: the device runs what was captured once, with new inputs,
sampling included. Launching the kernels of a pass one by one takes many times as long as they do.

A graph reads rows of blocks (`KVMemory.paged`) up to a length, so many tokens of each; numbers are
rounded up to powers of two, and what is not needed reads and writes block 0. Its inputs are one
upload, its ids and log-probabilities one download. It holds the addresses of weights and planes:
graphs stay where an optimizer changes weights in place, and are dropped where weights or planes
are others.
"""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agentsgym.generation.embedded.attention import BlockGroup
from agentsgym.generation.embedded.batch import RowTable, Sampled, noise_of
from agentsgym.generation.embedded.forward import PassCache, PassPlan, exponents
from agentsgym.generation.embedded.kv_cache import KVMemory, blocks_of
from agentsgym.generation.sampling import sample
from agentsgym.types.rows import Ints

logger = logging.getLogger(__name__)

MOST_TOKENS = 1024
"""A pass in which sequences read several tokens is a graph up to this size, padding included;
beyond, its kernels take longer than their launches."""


class StaticGroup(BlockGroup):
    """Rows of blocks of which each attends with `width` queries; all numbers are on the device:
    `positions` [n, width] and `table` [n, blocks of `block` tokens]."""

    def __init__(self, positions: Tensor, table: Tensor, block: int) -> None:
        self.count, self.width = positions.shape
        self.tokens = slice(0, self.count * self.width)
        self.positions = positions
        self.keys = table.shape[1] * block
        self.rows = self.grid = self._index = None
        self.causal = False
        self._masks = {}
        self._table = table


class Graph:
    """One pass of up to `rows` rows of `blocks` blocks, of which each reads up to `width` tokens.
    It `samples`, or gives logits if tokens are chosen from some ids only. `place` is the pool of
    memory and the stream of captures, which all graphs share.

    Raises RuntimeError if the model cannot be captured.
    """

    def __init__(
        self,
        model: Any,
        memory: KVMemory,
        shape: tuple[int, int, int],
        samples: bool,
        place: tuple[Any, Any],
    ) -> None:
        rows, width, blocks = shape
        self._model, self._memory, self._samples = model, memory, samples
        self._rows, self._width = rows, width
        sizes = {
            **dict.fromkeys(("ids", "positions", "blocks", "places"), rows * width),
            **dict.fromkeys(("last", "noise", "temperature"), rows),
            "table": rows * blocks,
        }
        ends = np.cumsum(list(sizes.values()))
        self._host = torch.zeros(int(ends[-1]), dtype=torch.int64).pin_memory()
        self._device = self._host.to(memory.planes[0].device)
        parts = np.split(self._host.numpy(), ends[:-1])
        self._given: dict[str, npt.NDArray[Any]] = dict(zip(sizes, parts, strict=True))
        self._read = dict(
            zip(sizes, torch.split_with_sizes(self._device, list(sizes.values())), strict=True)
        )
        for name in ("noise", "temperature"):
            self._given[name] = self._given[name].view(np.float64)
            self._read[name] = self._read[name].view(torch.float64)
        self._capture(*place)

    def _capture(self, pool: Any, beside: Any) -> None:
        here = torch.cuda.current_stream()
        beside.wait_stream(here)
        with torch.cuda.stream(beside):  # libraries initialize themselves in a first pass
            self._pass()
        here.wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._output = self._pass()

    def _pass(self) -> Tensor:
        """Ids, and the bits of float64 log-probabilities, [2, rows]; or logits [rows, vocab]."""
        read = self._read
        positions = read["positions"].view(self._rows, self._width)
        table = read["table"].view(self._rows, -1)
        output = self._model(
            input_ids=read["ids"][None],
            position_ids=read["positions"][None],
            past_key_values=PassCache(self._memory, read["blocks"], read["places"]),
            use_cache=True,
            logits_to_keep=0 if self._width == 1 else read["last"],
            packed_groups=[StaticGroup(positions, table, self._memory.block)],
        )
        logits: Tensor = output.logits[0].float()
        if not self._samples:
            return logits
        ids, logprobs, _ = sample(logits, read["noise"], read["temperature"])
        return torch.stack((ids, logprobs.double().view(torch.int64)))

    def run(self, table: RowTable, rows: Ints, starts: Ints, chunks: Ints) -> Tensor:
        """Read the next `chunks` tokens of each of `rows`, all [n], after `starts`; what the pass
        gives for them, which the next run overwrites."""
        given, n = self._given, len(rows)
        self._host.zero_()
        total = int(chunks.sum())
        within = np.arange(total) - np.repeat(np.cumsum(chunks) - chunks, chunks)
        each, positions = np.repeat(rows, chunks), np.repeat(starts, chunks) + within
        at = np.repeat(np.arange(n) * self._width, chunks) + within
        given["ids"][at] = table.tokens[each, positions]
        given["positions"][at] = positions
        given["blocks"][at], given["places"][at] = self._memory.address(each, positions)
        given["last"][:n] = np.arange(n) * self._width + chunks - 1
        given["noise"][:n] = noise_of(table, rows)
        given["temperature"][:n] = table.temperature[rows]
        blocks = given["table"].reshape(self._rows, -1)
        names = self._memory.read_by(rows)[:, : blocks.shape[1]]
        blocks[:n] = names[:, :1]
        blocks[:n, : names.shape[1]] = names
        self._device.copy_(self._host, non_blocking=True)
        self._graph.replay()
        return self._output[:, :n] if self._samples else self._output[:n]


class Graphs:
    """The graphs of one model's passes, which are captured as they are needed."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._graphs: dict[tuple[tuple[int, int, int], bool], Graph] = {}
        self._planes: tuple[KVMemory, int] | None = None
        self._weights: _Facts | None = None
        self._place: tuple[Any, Any] = (None, None)
        self._captures = True
        self._sure = False
        self.size = 0
        """Bytes that captures took."""

    def clear(self) -> None:
        """Drop all graphs."""
        self._graphs, self._place, self._planes, self._weights = {}, (None, None), None, None
        self.size = 0

    def look_again(self) -> None:
        """Before the next pass, find out whether the weights are those that graphs read."""
        self._sure = False

    def run(
        self, table: RowTable, memory: KVMemory, plan: PassPlan, *, samples: bool
    ) -> Sampled | Tensor | None:
        """The pass of `plan` and what is sampled for its finished rows, or if it `samples` not
        their logits [n, vocab]; None if it has to run without a graph."""
        if not (self._captures and memory.paged and memory.planes):
            return None
        if memory.planes[0].device.type != "cuda":
            return None
        sources, _, shared = plan.copies.T
        if (table.cached[sources] < shared).any():  # they read in this pass what is to be copied
            return None
        parts = list(_parts(plan))
        if any(rows * width > MOST_TOKENS and width > 1 for _, (rows, width, _) in parts):
            return None
        if len(plan.copies):
            copies = memory.copies(plan.copies, memory.planes[0].device)
            for plane in memory.planes:
                copies.make(plane)
        sampled = np.zeros((2, len(plan.rows)), np.int64)
        logits: list[Tensor] = []
        for part, shape in parts:
            graph = self._graph(memory, shape, samples)
            if graph is None:
                return None
            given = graph.run(table, plan.rows[part], plan.starts[part], plan.chunks[part])
            if samples:
                sampled[:, part] = given.cpu().numpy()
            else:
                logits.append(given.clone())
        table.cached[plan.rows] = plan.starts + plan.chunks
        table.source[plan.rows] = -1
        if samples:
            ids, bits = sampled[:, plan.finished]
            return Sampled(ids, bits.view(np.float64))
        places = np.argsort(np.concatenate([part for part, _ in parts]))[plan.finished]
        return torch.cat(logits)[torch.from_numpy(places).to(logits[0].device)]

    def _graph(self, memory: KVMemory, shape: tuple[int, int, int], samples: bool) -> Graph | None:
        self._look(memory)
        key = shape, samples
        if key not in self._graphs:
            try:
                before = torch.cuda.memory_reserved()
                self._graphs[key] = Graph(self._model, memory, *key, self._place)
                self.size += torch.cuda.memory_reserved() - before
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._captures = False
                self.clear()
                logger.warning(
                    "%s runs without CUDA graphs, and so several times slower: %s",
                    type(self._model).__name__,
                    error.__context__ or error,  # what it did, before the capture's own error
                )
                return None
        return self._graphs[key]

    def _look(self, memory: KVMemory) -> None:
        """Drop the graphs if planes or weights are others."""
        planes = memory, memory.version
        if self._sure and self._planes == planes:
            return
        weights = _Facts(self._model)
        if self._planes != planes or self._weights is None or self._weights.facts != weights.facts:
            self.clear()
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._place = torch.cuda.graph_pool_handle(), stream
            self._planes, self._weights = planes, weights
        self._sure = True


class _Facts:
    """What a graph of a model holds beside its inputs: where its weights are, and the numbers and
    names in its modules, such as those of active and of merged adapters."""

    def __init__(self, model: Any) -> None:
        self._weights = [*model.parameters(), *model.buffers()]  # held: no others get their place
        here = [(id(weight), weight.data_ptr()) for weight in self._weights]
        values = (value for module in model.modules() for value in vars(module).values())
        self.facts = here, [repr(value) for value in values if _is_plain(value)]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return isinstance(value, bool | int | float | str)


def _parts(plan: PassPlan) -> Iterator[tuple[Ints, tuple[int, int, int]]]:
    """Rows of alike lengths in the plan, and the shape of their graph: rows, tokens that each
    reads, blocks."""
    lengths = exponents(blocks_of(plan.starts + plan.chunks))
    for length in np.unique(lengths):
        part = np.flatnonzero(lengths == length)
        rows, width = exponents(np.array([len(part), plan.chunks[part].max()]))
        yield part, (1 << int(rows), 1 << int(width), 1 << int(length))
