"""What the engines in this process share: requests and their limits, stop rules, sampled tokens and
their results. They run the module that a trainer trains, or a copy of it in lower precision; after
a change of the weights `update_weights` must be called.
"""

import threading
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import numpy as np
import torch

from agentsgym.generation.embedded.batch import RowTable, Sampled
from agentsgym.generation.embedded.forward import evaluating
from agentsgym.generation.embedded.precision import ModelCopy
from agentsgym.generation.models import end_of_turn_ids, positions_of
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.tokens import ActionText
from agentsgym.types import (
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    WeightUpdate,
)
from agentsgym.types.choices import Answers, AnswerWalk, Choices
from agentsgym.types.protocols import check_submitted
from agentsgym.types.requests import context_overflow
from agentsgym.types.rows import Ints
from agentsgym.types.supports import Ids, Supports

_EXTRA = ("reused_tokens", "shared_prefix_tokens", "evictions")
_STOP_WINDOW = 16  # more tokens than a stop string is long; pieces may be empty or partial


class InProcessEngine(ABC):
    """An engine over `model` (a causal language model) and `tokenizer`. The subclass decides the
    order in which it reads and samples.

    `capacity` is the number of sequences sampled at once. `stop_token_ids` end an action (default:
    the tokenizer's and the generation config's end-of-sequence ids). With `dtype` the engine
    samples from a copy in that dtype, for a model that is trained in higher precision; with None
    from the model itself. `self.model` is the one that samples.
    """

    can_generate_ahead = False
    records_supports = True
    _skips = True
    """Whether what is forced needs no pass of its own: the next one reads several tokens."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        capacity: int = 64,
        stop_token_ids: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self._check(model)
        self._trained = model
        self._copy = None if dtype is None else ModelCopy(model, dtype)
        self.model = model if self._copy is None else self._copy.model
        self.tokenizer = tokenizer
        self.capacity = capacity
        config = model.config.get_text_config()
        self._vocabulary = int(config.vocab_size)
        self._positions = positions_of(config)
        self._totals: defaultdict[str, float] = defaultdict(float)
        self.policy_version = 0
        """The version of the weights in the last `update_weights`; 0 before any."""
        self._interrupted = threading.Event()
        self._requests: dict[str, GenerationRequest] = {}
        self._contexts: dict[str, Ints] = {}
        self._waiting: deque[str] = deque()
        self._walks: dict[str, AnswerWalk] = {}
        self._supports: defaultdict[str, list[tuple[int, Ids]]] = defaultdict(list)
        self._ready: list[GenerationResult] = []
        self._table = RowTable()
        self._is_stop = np.zeros(self._vocabulary, dtype=np.bool_)
        stops = end_of_turn_ids(tokenizer, model) if stop_token_ids is None else stop_token_ids
        self._action_text = ActionText(tokenizer, stops)
        self._is_stop[[token for token in stops if 0 <= token < self._vocabulary]] = True
        with evaluating(self.model):
            self._prepare()

    @abstractmethod
    def _check(self, model: Any) -> None:
        """Raise ValueError for a model that this engine cannot sample from."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make what sampling from `self.model` needs; the end of `__init__`."""

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
    def from_settings(cls, settings: EngineSettings, parts: EngineParts, **options: Any) -> Self:
        """Called by the factory. Raises ValueError for a model that is sharded over processes."""
        return cls(
            parts.whole_model(cls.__name__),
            parts.tokenizer(),
            dtype=parts.dtype,
            **settings.capacity_option,
            **options,
        )

    def poll(self) -> list[GenerationResult]:
        """Run forward passes until a request finishes, or another thread calls `interrupt`; return
        all finished ones, in any order."""
        if self._requests and not self._ready:
            with evaluating(self.model), self._attending():
                self._forward()
                while self._requests and not (self._ready or self._interrupted.is_set()):
                    self._forward()
        self._interrupted.clear()
        results, self._ready = self._ready, []
        return results

    def interrupt(self) -> None:
        """End `poll`, or the next one, after its next pass; for other threads."""
        self._interrupted.set()

    def _attending(self) -> AbstractContextManager[None]:
        """How the model attends within `poll`."""
        return nullcontext()

    @abstractmethod
    def _forward(self) -> None:
        """One forward pass over open requests."""

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        gone = set(session_ids)
        self._ready = [result for result in self._ready if result.session_id not in gone]
        for session_id in gone:
            self._close(session_id)

    @abstractmethod
    def reset(self) -> None:
        """Drop all caches, which is necessary after a change of the weights.

        Open requests continue: their sampled tokens are kept and read again with the new weights.
        """

    @property
    def device(self) -> torch.device:
        """The current device of the sampled weights; a trainer may move them."""
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def stats(self) -> EngineStats:
        """Totals since construction. `read_tokens` are the context tokens that forward passes read,
        that is all but the just sampled ones. `extra`: `reused_tokens` of the session's own cache,
        `shared_prefix_tokens` copied from another session whose context begins alike, and
        `evictions`, idle caches dropped to make room."""
        totals = self._totals
        passes = int(totals["passes"])
        return EngineStats(
            forward_passes=passes,
            sampled_tokens=int(totals["sampled"]),
            read_tokens=int(totals["read"]),
            occupancy=totals["filled"] / passes if passes else 1.0,
            extra={name: totals[name] for name in _EXTRA},
        )

    def _count_pass(self, sequences: int, read: int) -> None:
        """Count a pass over so many sequences that reads so many context tokens."""
        self._totals["passes"] += 1
        self._totals["filled"] += sequences / min(len(self._requests), self.capacity)
        self._totals["read"] += read

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Queue requests; an impossible one comes back as an error result from the next `poll`.

        Raises ValueError, and queues none, if a session already has a request open.
        """
        check_submitted(requests, self._requests)
        for request in requests:
            context = np.array(request.token_ids, dtype=np.int64)
            problem = self._problem(context, request.sampling.max_tokens)
            walk = None
            choices = request.choices
            if problem is None and choices is not None:
                try:
                    walk = choices.walk(self.tokenizer, self._vocabulary)
                    problem = self._unsampled(request, choices)
                except ValueError as error:
                    problem = str(error)
            if problem is not None:
                self._answer_error(request.session_id, problem)
            elif walk is not None and isinstance(choices, Choices) and len(choices.table) == 1:
                most = self._bounded(len(context) + request.sampling.max_tokens) - len(context)
                self._answer_only(request, walk.forced(), most)
            else:
                self._requests[request.session_id] = request
                self._contexts[request.session_id] = context
                self._waiting.append(request.session_id)
                if walk is not None and choices is not None and not choices.whole:
                    self._walks[request.session_id] = walk

    def _answer_only(self, request: GenerationRequest, forced: Sequence[int], most: int) -> None:
        """Answer a request that allows one answer, which needs no pass."""
        ids = tuple(forced[:most])
        supports = Supports.of((place, [token]) for place, token in enumerate(ids))
        ending: FinishReason = "stop" if len(ids) == len(forced) else "length"
        self._answer(request, ids, (0.0,) * len(ids), supports, ending)

    def _unsampled(self, request: GenerationRequest, choices: Answers) -> str | None:
        """The reason why no answer can be chosen, or None."""
        if choices.whole:
            return f"{type(self).__name__} does not choose among whole answers"
        return None

    def _problem(self, context: Ints, max_tokens: int) -> str | None:
        """The reason why a request can never be served, or None."""
        if not len(context):
            return "the context is empty"
        outside = context[(context < 0) | (context >= self._vocabulary)]
        if len(outside):
            return f"token id {outside[0]} is outside the vocabulary of {self._vocabulary}"
        if self._positions is not None and len(context) >= self._positions:
            return context_overflow(len(context), self._positions)
        return None

    def _longest(self, session_id: str) -> int:
        """The maximum length of context and action together."""
        most = self._requests[session_id].sampling.max_tokens
        return self._bounded(len(self._contexts[session_id]) + most)

    def _bounded(self, length: int) -> int:
        return length if self._positions is None else min(length, self._positions)

    def update_weights(self, update: WeightUpdate) -> None:
        """Sample from the changed weights. Raises ValueError if they are not this engine's."""
        first = next(self._trained.parameters())
        if all(parameter is not first for parameter in update.model.parameters()):
            raise ValueError(
                f"{type(self).__name__} samples from another model than the one that is trained; "
                "hand the trainer an engine over the same model, or none"
            )
        if self._copy is not None and update.changed:
            self._copy.refresh()
        self.reset()
        self.policy_version = update.version

    def close(self) -> None:
        """Drop all requests and caches."""
        self.release(list(self._requests))
        self.reset()

    def _allowed(self, rows: Ints) -> list[Ids | None]:
        """The ids that may be sampled next in each of `rows` [n], None for all; no list if that is
        so for each of them."""
        walks = [self._walks.get(self._table.sessions[row] or "") for row in rows.tolist()]
        if not any(walks):
            return []
        return [None if walk is None else walk.allowed for walk in walks]

    def _force(self, row: int) -> bool:
        """Append tokens to a row for as long as one id alone may come next; returns whether its
        answer is complete then."""
        table = self._table
        name = table.sessions[row] or ""
        if (walk := self._walks.get(name)) is None:
            return False
        known, room = int(table.known[row]), int(table.limit[row] - table.known[row])
        forced = walk.forced()
        taken = forced[:room]
        place = slice(known, known + len(taken))
        table.tokens[row, place], table.logprobs[row, place] = taken, 0.0
        table.known[row] = place.stop
        first = known - int(table.context[row])
        self._supports[name] += [
            (first + k, np.array([token], np.int32)) for k, token in enumerate(taken)
        ]
        return len(taken) == len(forced) and not len(walk.allowed) and not walk.error

    def _append(self, rows: Ints, sampled: Sampled) -> None:
        """Append what was sampled to each of `rows` [n]; close finished ones, and with an error
        those whose logits were not finite."""
        table = self._table
        token_ids, logprobs, supports = sampled
        ends = table.known[rows]
        for k, ids in enumerate(supports):
            if ids is not None:
                name, place = table.sessions[rows[k]] or "", ends[k] - table.context[rows[k]]
                self._supports[name].append((int(place), ids))
        table.tokens[rows, ends], table.logprobs[rows, ends] = token_ids, logprobs
        table.known[rows] = ends + 1
        failed = ~np.isfinite(logprobs)
        self._totals["sampled"] += len(rows)
        stopped = self._is_stop[token_ids]
        for i in np.flatnonzero(table.has_stop[rows] & ~stopped):
            stopped[i] = self._hits_stop(int(rows[i]), token_ids[i])
        for k, row in enumerate(rows.tolist()) if self._walks else ():
            walk = self._walks.get(table.sessions[row] or "")
            if walk is not None and not failed[k]:
                stopped[k] = walk.take(int(token_ids[k])) or (self._skips and self._force(row))
                failed[k] = bool(walk.error)
        full = table.known[rows] >= table.limit[rows]
        for i in np.flatnonzero(stopped | full | failed):
            session_id = table.sessions[rows[i]] or ""
            if failed[i]:
                walk = self._walks.get(session_id)
                error = walk.error if walk is not None else ""
                self._fail(session_id, error or "the model's logits are not finite")
            else:
                self._finish(session_id, "stop" if stopped[i] else "length")

    def _hits_stop(self, row: int, token: int) -> bool:
        """Whether the sampled token is among those that stop the request, or completed a stop
        string in the decoded text. As it is called after every token, it is enough to decode a
        window at the end, without special tokens, as in results."""
        table = self._table
        sampling = self._requests[table.sessions[row] or ""].sampling
        stops = sampling.stop
        if token in sampling.stop_token_ids or not stops:
            return token in sampling.stop_token_ids
        width = max(map(len, stops)) + _STOP_WINDOW
        first = max(int(table.context[row]), int(table.known[row]) - width)
        sampled = table.tokens[row, first : table.known[row]].tolist()
        text = self.tokenizer.decode(sampled, skip_special_tokens=True)
        return any(stop in text for stop in stops)

    def _finish(self, session_id: str, reason: FinishReason) -> None:
        """Close a request and make its result ready."""
        token_ids, logprobs = self._table.sampled_tokens(self._table.row_of[session_id])
        request, supports = self._requests[session_id], Supports.of(self._supports[session_id])
        self._close(session_id)
        self._answer(request, token_ids, logprobs, supports, reason)

    def _answer(
        self,
        request: GenerationRequest,
        token_ids: tuple[int, ...],
        logprobs: tuple[float, ...],
        supports: Supports,
        reason: FinishReason,
    ) -> None:
        text = self._action_text(token_ids, request.sampling.stop_token_ids)
        given = request.session_id, token_ids, logprobs, text, reason
        self._ready.append(
            GenerationResult(*given, policy_version=self.policy_version, supports=supports)
        )

    def _fail(self, session_id: str, reason: str) -> None:
        """Close a request with an error."""
        self._close(session_id)
        self._answer_error(session_id, reason)

    def _answer_error(self, session_id: str, reason: str) -> None:
        version, text = self.policy_version, f"session {session_id!r}: {reason}"
        self._ready.append(
            GenerationResult(session_id, finish_reason="error", policy_version=version, error=text)
        )

    def _close(self, session_id: str) -> None:
        """Mark the session as having no open request."""
        if self._requests.pop(session_id, None) is None:
            return
        del self._contexts[session_id]
        self._walks.pop(session_id, None)
        self._supports.pop(session_id, None)
        row = self._table.row_of.get(session_id)
        if row is not None and self._table.active[row]:
            self._table.active[row] = False
        else:
            self._waiting.remove(session_id)
