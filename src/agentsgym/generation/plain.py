"""The plain engine: a Hugging Face model in this process, run as it is.

It samples from models that the embedded engine refuses. A turn reads its whole context again, and
then decodes with the model's own cache; nothing is kept between turns. A batch is padded on the
left. Where that does not give the logits of a full forward pass, because padding would enter the
state of linear attention or the model has another cache or none, every token reads all tokens of
its sequence again; `reads_exactly` finds out.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from agentsgym.generation.embedded.batch import RowTable, sample_tokens
from agentsgym.generation.embedded.compatibility import check_causal, tolerance_of
from agentsgym.generation.embedded.forward import is_of_device
from agentsgym.generation.embedded.in_process import InProcessEngine
from agentsgym.generation.embedded.precision import exactly
from agentsgym.generation.models import without_adapter
from agentsgym.types.rows import Ints

_LENGTHS = (11, 7)
_DECODED = 3


class Reader:
    """The sequences of one batch, read by `model`, with its cache if `cached`; each call of `read`
    gives their next logits."""

    def __init__(self, model: Any, cached: bool, device: torch.device) -> None:
        self._model = model
        self._cached = cached
        self._device = device
        base = without_adapter(model)  # PEFT's own forward takes anything
        self._last_only = "logits_to_keep" in inspect.signature(base.forward).parameters
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
        if not self._cached:
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


def reads_exactly(model: Any, vocabulary: int, device: torch.device, tolerance: float) -> bool:
    """Whether cached logits equal those of full forward passes, over a batch of two lengths that
    becomes one of one; their difference is relative to the logits' size.

    `model` is in evaluation mode, without gradients.
    """
    first, second = _LENGTHS
    tokens = (np.arange(1, first + _DECODED + 1) * np.array([[7919], [104729]])) % vocabulary
    ours = Reader(model, True, device)
    for step in range(_DECODED + 1):
        rows = np.arange(2) if step < _DECODED else np.array([1])
        lengths = (np.array([first, second]) + step)[rows]
        try:
            logits, _ = ours.read(rows, tokens[rows], lengths)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            if is_of_device(error):
                raise
            return False  # the model has another cache, or none
        expected, _ = Reader(model, False, device).read(rows, tokens[rows], lengths)
        gap = float((logits - expected).abs().max()) / (1 + float(expected.abs().max()))
        if not gap <= tolerance:
            return False
    return True


class PlainEngine(InProcessEngine):
    """An `agentsgym.types.TrainableEngine` over `model` (a causal language model) and `tokenizer`.

    At most `capacity` sequences are sampled at once, and no more than fit into `max_batch_tokens`
    when all are as long as the longest. A batch is sampled to its end before the next one starts,
    in the order of arrival.

    Raises ValueError for a model whose tokens see later ones.
    """

    max_batch_tokens = 8192
    _skips = False

    def _check(self, model: Any) -> None:
        check_causal(model)

    def _prepare(self) -> None:
        with exactly(self.model, self.device):
            self.cached = reads_exactly(
                self.model, self._vocabulary, self.device, tolerance_of(self.model)
            )
        self._reader = Reader(self.model, self.cached, self.device)

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        super().release(session_ids)
        if not self._requests:
            self.reset()

    def reset(self) -> None:
        """Drop the cache. Open requests continue: their sampled tokens are kept and read again."""
        self._reader = Reader(self.model, self.cached, self.device)

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
        longest = self._longest(waiting[0])
        for name in waiting[1:]:
            if len(chosen) == self.capacity:
                break
            length = max(longest, self._longest(name))
            if (len(chosen) + 1) * length <= self.max_batch_tokens:
                chosen.append(name)
                longest = length
        return chosen

    def _forward(self) -> None:
        """One forward pass over the batch, or the next one, and a token for each of its
        sequences."""
        if not self._table.active.any():
            self._begin_batch()
        table = self._table
        rows = np.flatnonzero(table.active)
        logits, read = self._reader.read(rows, table.tokens[rows], table.known[rows])
        decoded = int((table.known[rows] > table.context[rows]).sum())
        self._count_pass(len(rows), max(0, read - decoded))
        self._append(rows, sample_tokens(table, rows, logits, self._allowed(rows)))
