"""The embedded engine: continuous batching over a Hugging Face model in this process.

Sessions keep their keys and values between their turns, so a turn only reads new tokens. The engine
has no weights of its own: it runs the module that a trainer trains, and after a change of the
weights `update_weights` (or `reset`) must be called.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from agentsgym.generation.embedded import sampling
from agentsgym.generation.embedded.attention import slot_attention_on
from agentsgym.generation.embedded.batch import Ints
from agentsgym.generation.embedded.cache_manager import Slots
from agentsgym.generation.embedded.compatibility import check_supported
from agentsgym.generation.embedded.forward import plan_pass, run_pass
from agentsgym.generation.embedded.probe import check_exact
from agentsgym.generation.embedded.rng import uniforms
from agentsgym.generation.embedded.stats import Tally
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

MAX_PREFILL_TOKENS = 2048


class EmbeddedEngine:
    """An `agentsgym.types.TrainableEngine` over `model` (a causal language model) and `tokenizer`.

    `capacity` is the number of sequences sampled at once; more sessions may be open and wait for
    a slot. `max_cache_tokens` limits the memory of all caches, in tokens (rows x row length, plus
    parked caches); beyond it, caches of idle sessions are dropped, least recently used first, and
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
        self.policy_version = 0
        config = model.config.get_text_config()
        self._vocabulary = int(config.vocab_size)
        self._max_positions: int | None = getattr(config, "max_position_embeddings", None)
        self._tally = Tally()
        self._slots = Slots(config.num_hidden_layers, capacity, max_cache_tokens, self._tally)
        self._requests: dict[str, GenerationRequest] = {}
        self._waiting: deque[str] = deque()
        self._contexts: dict[str, Ints] = {}
        self._ready: list[GenerationResult] = []
        self._is_stop = np.zeros(self._vocabulary, dtype=np.bool_)
        stops = end_of_turn_ids(tokenizer, model) if stop_token_ids is None else stop_token_ids
        self._action_text = ActionText(tokenizer, stops)
        self._is_stop[[token for token in stops if 0 <= token < self._vocabulary]] = True
        with self._evaluating():
            check_exact(self.model, config.num_hidden_layers, self._vocabulary, self.device)

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
                "ZeRO-3 spread it; set use_vllm or hand over an engine (docs/distributed.md)"
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
        names = [request.session_id for request in requests]
        for index, name in enumerate(names):
            if name in self._requests or name in names[:index]:
                raise ValueError(f"session {name!r} already has a request open")
        for request in requests:
            self._submit_one(request)

    def poll(self) -> list[GenerationResult]:
        """Run forward passes until a request finishes; return all finished ones, in any order."""
        if self._requests and not self._ready:
            with self._in_use():
                while self._requests and not self._ready:
                    self._admit()
                    self._slots.tidy()
                    self._forward()
        results, self._ready = self._ready, []
        return results

    def cancel(self, session_ids: Sequence[str]) -> None:
        """End open requests; each result has the tokens so far and the reason "cancelled"."""
        for session_id in session_ids:
            if session_id in self._requests:
                self._finish(session_id, "cancelled")

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results. Without any session, memory is freed."""
        gone = set(session_ids)
        self._ready = [result for result in self._ready if result.session_id not in gone]
        for session_id in gone:
            self._close(session_id)
            self._slots.forget(session_id)
        if not self._requests and not self._slots.sessions:
            self.reset()

    can_generate_ahead = False

    def update_weights(self, update: WeightUpdate) -> None:
        """Note that the weights changed. Raises ValueError if they are not this engine's."""
        if update.model is not self.model and not _shares_weights(self.model, update.model):
            raise ValueError(
                "the embedded engine samples from another model than the one that is trained; "
                "hand the trainer an engine over the same model, or none"
            )
        self.reset()
        self.policy_version = update.version

    def finish(self) -> None:
        """Nothing to do: each rank samples on its own."""

    def close(self) -> None:
        """Drop all requests and caches."""
        self.release(list(self._requests))
        self.reset()

    def reset(self) -> None:
        """Drop all caches, which is necessary after a change of the weights.

        Open requests continue: their sampled tokens are kept and read again with the new weights.
        """
        self._slots.clear()

    @property
    def stats(self) -> EngineStats:
        """Totals since construction; `extra` is described in `Tally`."""
        return self._tally.stats()

    def _submit_one(self, request: GenerationRequest) -> None:
        context = np.array(request.token_ids, dtype=np.int64)
        problem = self._problem(request, context)
        if problem is not None:
            text = f"session {request.session_id!r}: {problem}"
            self._ready.append(self._result(request.session_id, finish_reason="error", error=text))
            return
        self._requests[request.session_id] = request
        self._contexts[request.session_id] = context
        self._waiting.append(request.session_id)

    def _problem(self, request: GenerationRequest, context: Ints) -> str | None:
        """The reason why a request can never be served, or None."""
        if not len(context):
            return "the context is empty"
        outside = context[(context < 0) | (context >= self._vocabulary)]
        if len(outside):
            return f"token id {outside[0]} is outside the vocabulary of {self._vocabulary}"
        if self._max_positions is not None and len(context) >= self._max_positions:
            return (
                f"the context of {len(context)} tokens leaves no room in the model's "
                f"{self._max_positions} positions"
            )
        most = self._slots.max_cache_tokens
        if most is not None and self._limit(request, context) > most:
            return (
                f"context and action may take {self._limit(request, context)} tokens, more than "
                f"max_cache_tokens={most}"
            )
        return None

    def _limit(self, request: GenerationRequest, context: Ints) -> int:
        """The maximum length of context and action together."""
        wanted = len(context) + request.sampling.max_tokens
        return wanted if self._max_positions is None else min(wanted, self._max_positions)

    def _admit(self) -> None:
        """Give waiting requests a row, in the order of arrival, as long as there is room."""
        while self._waiting:
            session_id = self._waiting[0]
            request, context = self._requests[session_id], self._contexts[session_id]
            row = self._slots.acquire(session_id, self._limit(request, context), len(self._waiting))
            if row is None:
                return
            self._waiting.popleft()
            self._slots.begin(row, request, context, self._limit(request, context))

    def _forward(self) -> None:
        """One forward pass over all active rows, and a token for each that has read everything."""
        table = self._slots.table
        plan = plan_pass(table, self.max_prefill_tokens)
        self._tally.count_pass(table, plan, min(len(self._requests), self.capacity))
        logits = run_pass(self.model, self._slots.memory, table, plan, self.device)
        rows = plan.rows[plan.finished]
        if len(rows):
            self._sample(rows, logits)

    def _sample(self, rows: Ints, logits: torch.Tensor) -> None:
        """Append one token to each of `rows` [n] from `logits` [n, vocab]; close finished ones."""
        table = self._slots.table
        index = table.sampled_before[rows] + table.known[rows] - table.context[rows]
        noise = torch.from_numpy(uniforms(table.seed[rows], index)).to(self.device)
        ids, logprobs = sampling.sample(logits, noise, *self._parameters(rows))
        token_ids, values = ids.cpu().numpy(), logprobs.cpu().numpy()
        failed = ~np.isfinite(values)
        places = table.known[rows]
        table.tokens[rows, places] = token_ids
        table.logprobs[rows, places] = values
        table.known[rows] = places + 1
        self._tally.sampled_tokens += len(rows)
        stopped = self._is_stop[token_ids]
        for i in np.flatnonzero(table.has_stop[rows] & ~stopped):
            stopped[i] = self._hits_stop_string(int(rows[i]))
        full = places + 1 >= table.limit[rows]
        for i in np.flatnonzero(stopped | full | failed):
            session_id = table.sessions[rows[i]]
            assert session_id is not None
            if failed[i]:
                self._fail(session_id, "the model's logits are not finite")
            else:
                self._finish(session_id, "stop" if stopped[i] else "length")

    def _parameters(self, rows: Ints) -> tuple[torch.Tensor | None, ...]:
        """Temperature, top-k and top-p of `rows`, each None if no row uses it."""
        table = self._slots.table
        columns = (
            (table.temperature[rows], 1.0),
            (table.top_k[rows], 0),
            (table.top_p[rows], 1.0),
        )
        return tuple(
            torch.from_numpy(values).to(self.device) if (values != off).any() else None
            for values, off in columns
        )

    def _hits_stop_string(self, row: int) -> bool:
        table = self._slots.table
        request = self._requests[table.sessions[row] or ""]
        sampled = table.tokens[row, table.context[row] : table.known[row]].tolist()
        return ends_with_stop(self.tokenizer, sampled, request.sampling.stop)

    def _finish(self, session_id: str, reason: FinishReason) -> None:
        """Close a request and make its result ready; the session keeps its cache."""
        row = self._slots.row_of(session_id)
        sampled: tuple[tuple[int, ...], tuple[float, ...]] = ((), ())
        if row is not None and self._slots.table.active[row]:
            sampled = self._slots.table.sampled(row)
        self._close(session_id)
        self._ready.append(
            self._result(
                session_id,
                token_ids=sampled[0],
                logprobs=sampled[1],
                text=self._action_text(sampled[0]),
                finish_reason=reason,
            )
        )

    def _fail(self, session_id: str, reason: str) -> None:
        """Close a request with an error; its cache cannot be trusted."""
        self._close(session_id)
        self._slots.forget(session_id, poisoned=True)
        text = f"session {session_id!r}: {reason}"
        self._ready.append(self._result(session_id, finish_reason="error", error=text))

    def _result(self, session_id: str, **fields: Any) -> GenerationResult:
        return GenerationResult(session_id, policy_version=self.policy_version, **fields)

    def _close(self, session_id: str) -> None:
        """Mark the session as having no open request."""
        if self._requests.pop(session_id, None) is None:
            return
        del self._contexts[session_id]
        row = self._slots.row_of(session_id)
        if row is not None and self._slots.table.active[row]:
            self._slots.table.active[row] = False
        else:
            self._waiting.remove(session_id)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Prepare the model for forward passes inside the block."""
        with self._evaluating(), slot_attention_on(self.model.config):
            yield

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluation mode without gradients; both are restored afterwards."""
        training = [module for module in self.model.modules() if module.training]
        for module in training:
            module.training = False
        try:
            with torch.inference_mode():
                yield
        finally:
            for module in training:
                module.training = True


def _shares_weights(ours: Any, trained: Any) -> bool:
    """Whether `trained` contains the parameters of `ours`, for instance as a wrapper."""
    first = next(ours.parameters())
    return any(parameter is first for parameter in trained.parameters())
