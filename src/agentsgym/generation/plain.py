"""The plain engine: a Hugging Face model in this process, run as it is.

It samples from models that the embedded engine refuses. A turn reads its whole context again, and
then decodes with the model's own cache; nothing is kept between turns. What a batch may be differs
by model: any sequences, padded on the left; sequences of equal length only, because padding would
enter the state of linear attention; or without a cache, when every token reads all tokens again.
`choose_reading` tries these in this order, and takes the first that gives the logits of a full
forward pass.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from agentsgym.generation.embedded.batch import RowTable
from agentsgym.generation.embedded.compatibility import check_causal, tolerance_of
from agentsgym.generation.embedded.forward import evaluating
from agentsgym.generation.embedded.in_process import InProcessEngine
from agentsgym.types import GenerationResult
from agentsgym.types.records import Ints

_LENGTHS = (11, 7)
_DECODED = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """How a model reads a batch: with its cache or not, with sequences of several lengths or
    not."""

    cached: bool
    ragged: bool


_READINGS = (Reading(True, True), Reading(True, False), Reading(False, True))


class Reader:
    """The sequences of one batch, read by `model`; each call of `read` gives their next logits."""

    def __init__(self, model: Any, reading: Reading, device: torch.device) -> None:
        self._model = model
        self._reading = reading
        self._device = device
        self._last_only = "logits_to_keep" in inspect.signature(_base(model).forward).parameters
        self._cache: DynamicCache | None = None
        self._held: Ints = np.zeros(0, dtype=np.int64)
        self._mask: Tensor | None = None

    def forget(self) -> None:
        """Read all sequences again in the next pass."""
        self._cache = self._mask = None
        self._held = np.zeros(0, dtype=np.int64)

    def read(self, rows: Ints, tokens: Ints, lengths: Ints) -> tuple[Tensor, int]:
        """Float32 logits [n, vocab] after the first `lengths` [n] of `tokens` [n, longest], and how
        many tokens were read for them.

        `rows` [n], ascending, name the sequences. In the next pass each may have one token more,
        and sequences may be gone.
        """
        if self._cache is None:
            return self._read_all(rows, tokens, lengths)
        self._keep(rows)
        last = torch.from_numpy(tokens[np.arange(len(rows)), lengths - 1][:, None])
        options: dict[str, Any] = {}
        if self._mask is not None:
            self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
            options = self._masked(torch.from_numpy(lengths - 1)[:, None])
        return self._logits(last, **options), len(rows)

    def _read_all(self, rows: Ints, tokens: Ints, lengths: Ints) -> tuple[Tensor, int]:
        if not self._reading.cached:
            parts = [
                self._logits(torch.from_numpy(tokens[i : i + 1, :length]))
                for i, length in enumerate(lengths)
            ]
            return torch.cat(parts), int(lengths.sum())
        self._cache = DynamicCache(config=self._model.config)
        self._held = rows.copy()
        longest = int(lengths.max())
        if (lengths == longest).all():
            return self._logits(torch.from_numpy(tokens[:, :longest])), int(lengths.sum())
        padded = np.zeros((len(rows), longest), dtype=np.int64)
        mask = np.zeros_like(padded)
        for i, length in enumerate(lengths):
            padded[i, longest - length :] = tokens[i, :length]
            mask[i, longest - length :] = 1
        self._mask = torch.from_numpy(mask).to(self._device)
        positions = torch.from_numpy((mask.cumsum(1) - 1).clip(0))
        return self._logits(torch.from_numpy(padded), **self._masked(positions)), int(lengths.sum())

    def _masked(self, positions: Tensor) -> dict[str, Any]:
        return {"attention_mask": self._mask, "position_ids": positions.to(self._device)}

    def _keep(self, rows: Ints) -> None:
        """Drop the sequences that are gone from the cache."""
        if len(rows) == len(self._held):
            return
        kept = torch.from_numpy(np.searchsorted(self._held, rows)).to(self._device)
        assert self._cache is not None
        self._cache.reorder_cache(kept)
        self._mask = None if self._mask is None else self._mask[kept]
        self._held = rows.copy()

    def _logits(self, ids: Tensor, **options: Any) -> Tensor:
        if self._last_only:
            options["logits_to_keep"] = 1
        if self._cache is not None:
            options["past_key_values"] = self._cache
        output = self._model(
            input_ids=ids.to(self._device), use_cache=self._cache is not None, **options
        )
        logits: Tensor = output.logits[:, -1].float()
        return logits


def choose_reading(model: Any, vocabulary: int, device: torch.device, tolerance: float) -> Reading:
    """The first reading in which cached logits equal those of full forward passes.

    `model` is in evaluation mode, without gradients.
    """
    for reading in _READINGS[:-1]:
        try:
            gap = _largest_gap(model, reading, vocabulary, device)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            continue  # the model has another cache, or none
        if gap <= tolerance:
            return reading
    return _READINGS[-1]


def _largest_gap(model: Any, reading: Reading, vocabulary: int, device: torch.device) -> float:
    """The largest difference, relative to the logits' size, over a batch of two that becomes one
    of one."""
    first, second = _LENGTHS if reading.ragged else (_LENGTHS[0], _LENGTHS[0])
    tokens = (np.arange(1, first + _DECODED + 1) * np.array([[7919], [104729]])) % vocabulary
    ours = Reader(model, reading, device)
    gaps = []
    for step in range(_DECODED + 1):
        rows = np.arange(2) if step < _DECODED else np.array([1])
        lengths = (np.array([first, second]) + step)[rows]
        logits, _ = ours.read(rows, tokens[rows], lengths)
        expected, _ = Reader(model, _READINGS[-1], device).read(rows, tokens[rows], lengths)
        scale = 1 + float(expected.abs().max())
        gaps.append(float((logits - expected).abs().max()) / scale)
    return max(gaps)


def _base(model: Any) -> Any:
    """The model inside PEFT's wrapper, whose forward takes anything."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


MAX_BATCH_TOKENS = 8192


class PlainEngine(InProcessEngine):
    """An `agentsgym.types.TrainableEngine` over `model` (a causal language model) and `tokenizer`.

    At most `capacity` sequences are sampled at once, and no more than fit into `max_batch_tokens`
    when all are as long as the longest. `stop_token_ids` end an action (default: the tokenizer's
    and the generation config's end-of-sequence ids). A batch is sampled to its end before the next
    one starts, in the order of arrival. `dtype` makes the engine sample from a copy in that dtype.

    Raises ValueError for a model whose tokens see later ones.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        capacity: int = 64,
        stop_token_ids: Sequence[int] | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, value in (("capacity", capacity), ("max_batch_tokens", max_batch_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        check_causal(model)
        super().__init__(
            model,
            tokenizer,
            capacity=capacity,
            stop_token_ids=stop_token_ids,
            dtype=dtype,
        )
        self.max_batch_tokens = max_batch_tokens
        with evaluating(self.model):
            self.reading = choose_reading(
                self.model, self._vocabulary, self.device, tolerance_of(self.model)
            )
        self._reader = Reader(self.model, self.reading, self.device)

    def poll(self) -> list[GenerationResult]:
        """Run forward passes until a request finishes; return all finished ones, in any order."""
        if self._requests and not self._ready:
            with evaluating(self.model):
                while self._requests and not (self._ready or self.interrupted()):
                    if not self._table.active.any():
                        self._begin_batch()
                    self._forward()
        return self._take_ready()

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        super().release(session_ids)
        if not self._requests:
            self.reset()

    def reset(self) -> None:
        """Drop the cache. Open requests continue: their sampled tokens are kept and read again."""
        self._reader = Reader(self.model, self.reading, self.device)

    def _begin_batch(self) -> None:
        """Give a row to each waiting request of the next batch."""
        names = self._next_batch()
        limits = [self._longest(name) for name in names]
        self._table = RowTable()
        self._table.grow(len(names), max(limits))
        self._reader.forget()
        for row, (name, limit) in enumerate(zip(names, limits, strict=True)):
            request, context = self._requests[name], self._contexts[name]
            self._table.open(row, context, request.sampling, request.seed, request.sampled_before)
            self._table.give(row, name)
            self._table.limit[row] = limit
            self._waiting.remove(name)

    def _next_batch(self) -> list[str]:
        """The oldest waiting request, and those that fit to it."""
        waiting = list(self._waiting)
        chosen = waiting[:1]
        first, longest = len(self._contexts[waiting[0]]), self._longest(waiting[0])
        for name in waiting[1:]:
            if len(chosen) == self.capacity:
                break
            length = max(longest, self._longest(name))
            fits = (len(chosen) + 1) * length <= self.max_batch_tokens
            if fits and (self.reading.ragged or len(self._contexts[name]) == first):
                chosen.append(name)
                longest = length
        return chosen

    def _forward(self) -> None:
        """One forward pass over the batch, and a token for each of its sequences."""
        table = self._table
        rows = np.flatnonzero(table.active)
        possible = min(len(self._requests), self.capacity)
        logits, read = self._reader.read(rows, table.tokens[rows], table.known[rows])
        decoded = int((table.known[rows] > table.context[rows]).sum())
        self._counters.count(len(rows), possible, max(0, read - decoded))
        self._sample(rows, logits)
