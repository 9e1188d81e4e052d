"""The embedded engine: continuous batching over a Hugging Face model in this process.

Sessions keep their keys and values between their turns, so a turn only reads new tokens. The engine
has no weights of its own: it runs the module that a trainer trains, and after a change of the
weights `update_weights` (or `reset`) must be called.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from agentsgym.generation.embedded.attention import slot_attention_on
from agentsgym.generation.embedded.batch import append_tokens
from agentsgym.generation.embedded.cache_manager import CacheManager
from agentsgym.generation.embedded.compatibility import check_exact, check_supported
from agentsgym.generation.embedded.forward import evaluating, plan_pass, run_pass
from agentsgym.generation.embedded.requests import Limits, OpenRequests
from agentsgym.generation.embedded.stats import Counters
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.generation.stop_criteria import end_of_turn_ids, ends_with_stop
from agentsgym.tokens import ActionText
from agentsgym.types import (
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    WeightUpdate,
)
from agentsgym.types.arrays import Ints

MAX_PREFILL_TOKENS = 2048


class EmbeddedEngine:
    """An `agentsgym.types.TrainableEngine` over `model` (a causal language model) and `tokenizer`.

    `capacity` is the number of sequences sampled at once; more sessions may be open, they wait for
    a row. `max_cache_tokens` bounds the memory of all caches, in tokens (rows x row length, plus
    what is offloaded); past it, caches of idle sessions are dropped, least recently used first, and
    read again when needed. `stop_token_ids` end an action (default: the tokenizer's and the
    generation config's end-of-sequence ids). `max_prefill_tokens` limits the context tokens that
    one forward pass reads.

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
    ) -> None:
        for name, value in (("capacity", capacity), ("max_prefill_tokens", max_prefill_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        check_supported(model)
        self.model = model if device is None else model.to(device)
        self.tokenizer = tokenizer
        self.capacity = capacity
        self.max_prefill_tokens = max_prefill_tokens
        config = model.config.get_text_config()
        vocabulary = int(config.vocab_size)
        positions: int | None = getattr(config, "max_position_embeddings", None)
        self._limits = Limits(vocabulary, positions, max_cache_tokens)
        self._counters = Counters()
        layers = config.num_hidden_layers
        self._caches = CacheManager(layers, capacity, max_cache_tokens, self._counters)
        self._open = OpenRequests()
        self._is_stop = np.zeros(vocabulary, dtype=np.bool_)
        stops = end_of_turn_ids(tokenizer, model) if stop_token_ids is None else stop_token_ids
        self._action_text = ActionText(tokenizer, stops)
        self._is_stop[[token for token in stops if 0 <= token < vocabulary]] = True
        with evaluating(self.model):
            check_exact(self.model, layers, vocabulary, self.device)

    @classmethod
    def from_pretrained(cls, path: str, *, dtype: str = "auto", **options: Any) -> "EmbeddedEngine":
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
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> "EmbeddedEngine":
        """Called by the factory. Raises ValueError for a model that is sharded over processes."""
        if parts.sharded:
            raise ValueError(
                "the embedded engine needs the whole model in each process, but FSDP or DeepSpeed "
                "ZeRO-3 spread it; set use_vllm or pass an engine (docs/distributed.md)"
            )
        stops = parts.stop_token_ids
        return cls(parts.model(), parts.tokenizer(), stop_token_ids=stops, **settings.capacity)

    @property
    def device(self) -> torch.device:
        """The current device of the model's weights; a trainer may move them."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Queue requests; an impossible one comes back as an error result from the next `poll`.

        Raises ValueError, and queues none, if a session already has a request open.
        """
        self._open.check_new(requests)
        for request in requests:
            self._open.add(request, self._limits)

    def poll(self) -> list[GenerationResult]:
        """Run forward passes until a request finishes; return all finished ones, in any order."""
        if self._open.requests and not self._open.ready:
            with evaluating(self.model), slot_attention_on(self.model.config):
                while self._open.requests and not self._open.ready:
                    self._admit()
                    self._caches.sort_by_length()
                    self._forward()
        return self._open.take_ready()

    def cancel(self, session_ids: Sequence[str]) -> None:
        """End open requests; each result has the tokens so far and the reason "cancelled"."""
        for session_id in session_ids:
            if session_id in self._open.requests:
                self._finish(session_id, "cancelled")

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results. Without any session, memory is freed."""
        gone = set(session_ids)
        self._open.drop_ready(gone)
        for session_id in gone:
            self._close(session_id)
            self._caches.forget(session_id)
        if not self._open.requests and not self._caches.sessions:
            self.reset()

    can_generate_ahead = False

    @property
    def policy_version(self) -> int:
        """The version of the weights that the last `update_weights` named; 0 before any."""
        return self._open.policy_version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        warnings.warn(
            "EmbeddedEngine.policy_version is now set by update_weights; setting it will end with "
            "agentsgym 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        self._open.policy_version = version

    def update_weights(self, update: WeightUpdate) -> None:
        """Note that the weights changed. Raises ValueError if they are not this engine's."""
        if update.model is not self.model and not _shares_weights(self.model, update.model):
            raise ValueError(
                "the embedded engine samples from another model than the one that is trained; "
                "hand the trainer an engine over the same model, or none"
            )
        self.reset()
        self._open.policy_version = update.version

    def finish(self) -> None:
        """Nothing to do: each rank samples on its own."""

    def close(self) -> None:
        """Drop all requests and caches."""
        self.release(list(self._open.requests))
        self.reset()

    def reset(self) -> None:
        """Drop all caches, which is necessary after a change of the weights.

        Open requests continue: their sampled tokens are kept and read again with the new weights.
        """
        self._caches.clear()

    @property
    def stats(self) -> EngineStats:
        """Totals since construction; `extra` is described in `Counters`."""
        return self._counters.stats()

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

    def _sample(self, rows: Ints, logits: torch.Tensor) -> None:
        """Append one token to each of `rows` [n] from `logits` [n, vocab]; close finished ones."""
        table = self._caches.table
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
        table = self._caches.table
        request = self._open.requests[table.sessions[row] or ""]
        sampled = table.tokens[row, table.context[row] : table.known[row]].tolist()
        return ends_with_stop(self.tokenizer, sampled, request.sampling.stop)

    def _finish(self, session_id: str, reason: FinishReason) -> None:
        """Close a request and make its result ready; the session keeps its cache."""
        row = self._caches.row_of(session_id)
        sampled: tuple[tuple[int, ...], tuple[float, ...]] = ((), ())
        if row is not None and self._caches.table.active[row]:
            sampled = self._caches.table.sampled(row)
        self._close(session_id)
        self._open.answer(
            session_id,
            token_ids=sampled[0],
            logprobs=sampled[1],
            text=self._action_text(sampled[0]),
            finish_reason=reason,
        )

    def _fail(self, session_id: str, reason: str) -> None:
        """Close a request with an error; its cache cannot be trusted."""
        self._close(session_id)
        self._caches.forget(session_id, poisoned=True)
        self._open.fail(session_id, reason)

    def _close(self, session_id: str) -> None:
        """Mark the session as having no open request."""
        if not self._open.close(session_id):
            return
        row = self._caches.row_of(session_id)
        if row is not None and self._caches.table.active[row]:
            self._caches.table.active[row] = False
        else:
            self._open.waiting.remove(session_id)


def _shares_weights(ours: Any, trained: Any) -> bool:
    """Whether `trained` contains the parameters of `ours`, for instance as a wrapper."""
    first = next(ours.parameters())
    return any(parameter is first for parameter in trained.parameters())
