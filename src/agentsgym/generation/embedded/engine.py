"""The embedded engine: continuous batching over a Hugging Face model in this process.

Sessions keep their keys and values between their turns, so a turn only reads new tokens. What it
shares with the plain engine stands in `InProcessEngine`: requests, stop rules, sampled tokens and
their results. Both run the module that a trainer trains, or a copy of it in fewer bits; after a
change of the weights `update_weights` must be called.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch

from agentsgym.generation.embedded.attention import slot_attention_on
from agentsgym.generation.embedded.batch import RowTable, append_tokens
from agentsgym.generation.embedded.cache_manager import CacheManager
from agentsgym.generation.embedded.compatibility import check_exact, check_supported
from agentsgym.generation.embedded.forward import Counters, evaluating, plan_pass, run_pass
from agentsgym.generation.embedded.precision import ModelCopy
from agentsgym.generation.embedded.requests import (
    ContextLimits,
    OpenRequests,
    end_of_turn_ids,
    ends_with_stop,
    positions_of,
)
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.tokens import ActionText
from agentsgym.types import (
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    WeightUpdate,
)
from agentsgym.types.records import Ints


class InProcessEngine(ABC):
    """An engine over `model` (a causal language model) and `tokenizer`, without the order in which
    it reads and samples: that is its subclass's.

    `stop_token_ids` end an action (default: the tokenizer's and the generation config's
    end-of-sequence ids). `dtype` lets the engine sample from a copy in that dtype, for a model that
    is trained in more bits; None samples from the model itself. `self.model` is what it samples
    from.
    """

    can_generate_ahead = False

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        capacity: int,
        max_cache_tokens: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._trained = model if device is None else model.to(device)
        self._copy = None if dtype is None else ModelCopy(self._trained, dtype)
        self.model = self._trained if self._copy is None else self._copy.model
        self.tokenizer = tokenizer
        self.capacity = capacity
        config = model.config.get_text_config()
        self._vocabulary = int(config.vocab_size)
        self._limits = ContextLimits(self._vocabulary, positions_of(config), max_cache_tokens)
        self._counters = Counters()
        self._open = OpenRequests()
        self._is_stop = np.zeros(self._vocabulary, dtype=np.bool_)
        stops = end_of_turn_ids(tokenizer, model) if stop_token_ids is None else stop_token_ids
        self._action_text = ActionText(tokenizer, stops)
        self._is_stop[[token for token in stops if 0 <= token < self._vocabulary]] = True

    @classmethod
    def from_pretrained(cls, path: str, *, dtype: str = "auto", **options: Any) -> Self:
        """An engine over the model and tokenizer in a directory or of a hub name.

        `dtype` is transformers' (for instance "bfloat16"); `options` go to the constructor. Only
        safetensors files are read, and a model's own code is never run.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, trust_remote_code=False, use_safetensors=True
        )
        return cls(model, AutoTokenizer.from_pretrained(path, trust_remote_code=False), **options)

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> Self:
        """Called by the factory. Raises ValueError for a model that is sharded over processes."""
        return cls(
            parts.whole_model(cls.__name__),
            parts.tokenizer(),
            stop_token_ids=parts.stop_token_ids,
            dtype=parts.dtype,
            **settings.capacity_option,
        )

    @abstractmethod
    def poll(self) -> list[GenerationResult]:
        """Run forward passes until a request finishes; return all finished ones, in any order."""

    @abstractmethod
    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""

    @abstractmethod
    def reset(self) -> None:
        """Drop all caches, which is necessary after a change of the weights.

        Open requests continue: their sampled tokens are kept and read again with the new weights.
        """

    @property
    @abstractmethod
    def _table(self) -> RowTable:
        """The rows in which requests are sampled."""

    @abstractmethod
    def _row_of(self, session_id: str) -> int | None:
        """The session's row, or None while it has none."""

    @abstractmethod
    def _spoil(self, session_id: str) -> None:
        """The session's cache cannot be trusted."""

    @property
    def device(self) -> torch.device:
        """The current device of the sampled weights; a trainer may move them."""
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def stats(self) -> EngineStats:
        """Totals since construction; `extra` is described in `Counters`."""
        return self._counters.stats()

    @property
    def policy_version(self) -> int:
        """The version of the weights that the last `update_weights` named; 0 before any."""
        return self._open.policy_version

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Queue requests; an impossible one comes back as an error result from the next `poll`.

        Raises ValueError, and queues none, if a session already has a request open.
        """
        self._open.check_new(requests)
        for request in requests:
            self._open.add(request, self._limits)

    def cancel(self, session_ids: Sequence[str]) -> None:
        """End open requests; each result has the tokens so far and the reason "cancelled"."""
        for session_id in session_ids:
            if session_id in self._open.requests:
                self._finish(session_id, "cancelled")

    def update_weights(self, update: WeightUpdate) -> None:
        """Sample from the changed weights. Raises ValueError if they are not this engine's."""
        if update.model is not self._trained and not _shares_weights(self._trained, update.model):
            raise ValueError(
                f"{type(self).__name__} samples from another model than the one that is trained; "
                "hand the trainer an engine over the same model, or none"
            )
        if self._copy is not None and update.changed:
            self._copy.refresh()
        self.reset()
        self._open.policy_version = update.version

    def finish(self) -> None:  # noqa: B027  # nothing to do: each rank samples on its own
        """Each rank's rollouts end on their own."""

    def close(self) -> None:
        """Drop all requests and caches."""
        self.release(list(self._open.requests))
        self.reset()

    def _sample(self, rows: Ints, logits: torch.Tensor) -> None:
        """Append one token to each of `rows` [n] from `logits` [n, vocab]; close finished ones."""
        table = self._table
        token_ids, failed = append_tokens(table, rows, logits)
        self._counters.sampled_tokens += len(rows)
        stopped = self._is_stop[token_ids]
        for i in np.flatnonzero(table.has_stop[rows] & ~stopped):
            stopped[i] = self._hits_stop_string(int(rows[i]))
        full = table.known[rows] >= table.limit[rows]
        for i in np.flatnonzero(stopped | full | failed):
            session_id = table.sessions[rows[i]]
            assert session_id is not None
            if failed[i]:
                self._fail(session_id, "the model's logits are not finite")
            else:
                self._finish(session_id, "stop" if stopped[i] else "length")

    def _hits_stop_string(self, row: int) -> bool:
        table = self._table
        request = self._open.requests[table.sessions[row] or ""]
        sampled = table.tokens[row, table.context[row] : table.known[row]].tolist()
        return ends_with_stop(self.tokenizer, sampled, request.sampling.stop)

    def _finish(self, session_id: str, reason: FinishReason) -> None:
        """Close a request and make its result ready."""
        row = self._row_of(session_id)
        sampled: tuple[tuple[int, ...], tuple[float, ...]] = ((), ())
        if row is not None and self._table.active[row]:
            sampled = self._table.sampled(row)
        self._close(session_id)
        self._open.answer(
            session_id,
            token_ids=sampled[0],
            logprobs=sampled[1],
            text=self._action_text(sampled[0]),
            finish_reason=reason,
        )

    def _fail(self, session_id: str, reason: str) -> None:
        """Close a request with an error."""
        self._close(session_id)
        self._spoil(session_id)
        self._open.fail(session_id, reason)

    def _close(self, session_id: str) -> None:
        """Mark the session as having no open request."""
        if not self._open.close(session_id):
            return
        row = self._row_of(session_id)
        if row is not None and self._table.active[row]:
            self._table.active[row] = False
        else:
            self._open.waiting.remove(session_id)


def _shares_weights(ours: Any, trained: Any) -> bool:
    """Whether `trained` contains the parameters of `ours`, for instance as a wrapper."""
    first = next(ours.parameters())
    return any(parameter is first for parameter in trained.parameters())


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
