"""The plain engine: a Hugging Face model in this process, run as it is.

It samples from models that the embedded engine refuses. A turn reads its whole context again, and
then decodes with the model's own cache; nothing is kept between turns.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from agentsgym.generation.embedded.batch import RowTable
from agentsgym.generation.embedded.compatibility import check_causal, tolerance_of
from agentsgym.generation.embedded.forward import evaluating
from agentsgym.generation.embedded.in_process import InProcessEngine
from agentsgym.generation.plain.reader import Reader, choose_reading
from agentsgym.types import GenerationResult

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
        device: torch.device | str | None = None,
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
            device=device,
            dtype=dtype,
        )
        self.max_batch_tokens = max_batch_tokens
        self._batch = RowTable()
        with evaluating(self.model):
            self.reading = choose_reading(
                self.model, self._vocabulary, self.device, tolerance_of(self.model)
            )
        self._reader = Reader(self.model, self.reading, self.device)

    def poll(self) -> list[GenerationResult]:
        """Run forward passes until a request finishes; return all finished ones, in any order."""
        if self._open.requests and not self._open.ready:
            with evaluating(self.model):
                while self._open.requests and not self._open.ready:
                    if not self._batch.active.any():
                        self._begin_batch()
                    self._forward()
        return self._open.take_ready()

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        self._open.drop_ready(set(session_ids))
        for session_id in session_ids:
            self._close(session_id)
        if not self._open.requests:
            self.reset()

    def reset(self) -> None:
        """Drop the cache, which is necessary after a change of the weights.

        Open requests continue: their sampled tokens are kept and read again with the new weights.
        """
        self._reader = Reader(self.model, self.reading, self.device)

    def _begin_batch(self) -> None:
        """Give a row to each waiting request of the next batch."""
        names = self._next_batch()
        limits = [self._limit(name) for name in names]
        self._batch = RowTable()
        self._batch.resize(len(names), max(limits))
        self._reader.forget()
        for row, (name, limit) in enumerate(zip(names, limits, strict=True)):
            request, context = self._open.requests[name], self._open.contexts[name]
            self._batch.open(row, context, request.sampling, request.seed, request.sampled_before)
            self._batch.sessions[row] = name
            self._batch.limit[row] = limit
            self._open.waiting.remove(name)

    def _next_batch(self) -> list[str]:
        """The oldest waiting request, and those that fit to it."""
        waiting = list(self._open.waiting)
        chosen = waiting[:1]
        first, longest = len(self._open.contexts[waiting[0]]), self._limit(waiting[0])
        for name in waiting[1:]:
            if len(chosen) == self.capacity:
                break
            room = max(longest, self._limit(name))
            fits = (len(chosen) + 1) * room <= self.max_batch_tokens
            if fits and (self.reading.ragged or len(self._open.contexts[name]) == first):
                chosen.append(name)
                longest = room
        return chosen

    def _limit(self, session_id: str) -> int:
        """Tokens of a request's context and the longest action."""
        return self._limits.length(self._open.requests[session_id], self._open.contexts[session_id])

    def _forward(self) -> None:
        """One forward pass over the batch, and a token for each of its sequences."""
        table = self._batch
        rows = np.flatnonzero(table.active)
        possible = min(len(self._open), self.capacity)
        logits, read = self._reader.read(rows, table.tokens[rows], table.known[rows])
        decoded = int((table.known[rows] > table.context[rows]).sum())
        self._counters.count(len(rows), possible, max(0, read - decoded))
        self._sample(rows, logits)

    @property
    def _table(self) -> RowTable:
        return self._batch

    def _row_of(self, session_id: str) -> int | None:
        sessions = self._batch.sessions
        return sessions.index(session_id) if session_id in sessions else None

    def _spoil(self, session_id: str) -> None:
        """Nothing is kept between requests, and rows do not see each other."""
