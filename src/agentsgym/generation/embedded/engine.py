"""The embedded engine: continuous batching over a Hugging Face model in this process.

Sessions keep their keys and values between their turns, so a turn only reads new tokens.
"""

from collections.abc import Sequence
from typing import Any

import torch

from agentsgym.generation.embedded.attention import slot_attention_on
from agentsgym.generation.embedded.batch import RowTable
from agentsgym.generation.embedded.cache_manager import CacheManager
from agentsgym.generation.embedded.compatibility import check_exact, check_supported
from agentsgym.generation.embedded.forward import evaluating, plan_pass, run_pass
from agentsgym.generation.embedded.in_process import InProcessEngine
from agentsgym.types import GenerationResult

MAX_PREFILL_TOKENS = 2048


class EmbeddedEngine(InProcessEngine):
    """An `agentsgym.types.TrainableEngine` over `model` (a causal language model) and `tokenizer`.

    `capacity` is the number of sequences sampled at once; more sessions may be open, they wait for
    a row. `max_cache_tokens` bounds the memory of all caches, in tokens (rows x row length, plus
    what is offloaded); past it, caches of idle sessions are dropped, least recently used first, and
    read again when needed. `stop_token_ids` end an action (default: the tokenizer's and the
    generation config's end-of-sequence ids). `max_prefill_tokens` limits the context tokens that
    one forward pass reads. `dtype` makes the engine sample from a copy in that dtype, for a model
    that is trained in more bits.

    While it samples, the engine changes the model's attention and mode, so no other thread may run
    the same model at that moment; give each thread its own copy. `poll` raises RuntimeError if a
    second engine tries to.

    Raises UnsupportedModelError for a model whose caches or positions it cannot handle exactly.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        capacity: int = 64,
        max_cache_tokens: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
        device: torch.device | str | None = None,
        max_prefill_tokens: int = MAX_PREFILL_TOKENS,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, value in (("capacity", capacity), ("max_prefill_tokens", max_prefill_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        check_supported(model)
        super().__init__(
            model,
            tokenizer,
            capacity=capacity,
            max_cache_tokens=max_cache_tokens,
            stop_token_ids=stop_token_ids,
            device=device,
            dtype=dtype,
        )
        self.max_prefill_tokens = max_prefill_tokens
        layers = model.config.get_text_config().num_hidden_layers
        self._caches = CacheManager(layers, capacity, max_cache_tokens, self._counters)
        with evaluating(self.model):
            check_exact(self.model, layers, self._vocabulary, self.device)

    def poll(self) -> list[GenerationResult]:
        """Run forward passes until a request finishes; return all finished ones, in any order."""
        if self._open.requests and not self._open.ready:
            with evaluating(self.model), slot_attention_on(self.model.config):
                while self._open.requests and not self._open.ready:
                    self._admit()
                    self._caches.sort_by_length()
                    self._forward()
        return self._open.take_ready()

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results. Without any session, memory is freed."""
        gone = set(session_ids)
        self._open.drop_ready(gone)
        for session_id in gone:
            self._close(session_id)
            self._caches.forget(session_id)
        if not self._open.requests and not self._caches.sessions:
            self.reset()

    @property
    def policy_version(self) -> int:
        """The version of the weights that the last `update_weights` named; 0 before any."""
        return self._open.policy_version

    def reset(self) -> None:
        """Drop all caches, which is necessary after a change of the weights.

        Open requests continue: their sampled tokens are kept and read again with the new weights.
        """
        self._caches.clear()

    def _admit(self) -> None:
        """Give waiting requests a row, in the order of arrival, as long as there is room."""
        waiting = self._open.waiting
        while waiting:
            session_id = waiting[0]
            request, context = self._open.requests[session_id], self._open.contexts[session_id]
            length = self._limits.length(request, context)
            row = self._caches.acquire(session_id, length, len(waiting))
            if row is None:
                return
            waiting.popleft()
            self._caches.begin(row, request, context, length)

    def _forward(self) -> None:
        """One forward pass over all active rows, and a token for each that has read everything."""
        table = self._caches.table
        plan = plan_pass(table, self.max_prefill_tokens)
        self._counters.count_pass(table, plan, min(len(self._open), self.capacity))
        logits = run_pass(self.model, self._caches.memory, table, plan, self.device)
        rows = plan.rows[plan.finished]
        if len(rows):
            self._sample(rows, logits)

    @property
    def _table(self) -> RowTable:
        return self._caches.table

    def _row_of(self, session_id: str) -> int | None:
        return self._caches.row_of(session_id)

    def _spoil(self, session_id: str) -> None:
        self._caches.forget(session_id, poisoned=True)
