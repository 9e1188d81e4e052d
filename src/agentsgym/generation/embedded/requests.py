"""Requests of the engines in this process: waiting, being sampled, answered; and where an action
ends: end-of-turn tokens and stop strings.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentsgym.types import GenerationRequest, GenerationResult
from agentsgym.types.records import Ints
from agentsgym.types.requests import context_overflow


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """What a context may be: ids below `vocabulary`, at most `max_positions` tokens with the action
    (None: no bound), and no more than the caches hold."""

    vocabulary: int
    max_positions: int | None
    max_cache_tokens: int | None

    def length(self, request: GenerationRequest, context: Ints) -> int:
        """The maximum length of context and action together."""
        wanted = len(context) + request.sampling.max_tokens
        return wanted if self.max_positions is None else min(wanted, self.max_positions)

    def problem(self, request: GenerationRequest, context: Ints) -> str | None:
        """The reason why a request can never be served, or None."""
        if not len(context):
            return "the context is empty"
        outside = context[(context < 0) | (context >= self.vocabulary)]
        if len(outside):
            return f"token id {outside[0]} is outside the vocabulary of {self.vocabulary}"
        if self.max_positions is not None and len(context) >= self.max_positions:
            return context_overflow(len(context), self.max_positions)
        most = self.max_cache_tokens
        if most is not None and self.length(request, context) > most:
            return (
                f"context and action may take {self.length(request, context)} tokens, more than "
                f"max_cache_tokens={most}"
            )
        return None


def positions_of(config: Any) -> int | None:
    """The longest sequence that a model of `config` reads; None: no bound.

    Where positions change beyond a length (rope types dynamic and longrope), it is that length: a
    longer row would give its earlier tokens other probabilities than those they were sampled with.
    """
    positions: int | None = getattr(config, "max_position_embeddings", None)
    for rope in rope_parameters(config):
        if rope.get("rope_type") in ("dynamic", "longrope"):
            first = rope.get("original_max_position_embeddings")
            first = first or getattr(config, "original_max_position_embeddings", None)
            positions = first or positions
    return positions


def rope_parameters(config: Any) -> list[dict[str, Any]]:
    """The parameters of rotary positions: one for all layers, or one for each type of layer."""
    ropes = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in ropes.values() if isinstance(value, dict)]
    return nested or [ropes]


class OpenRequests:
    """The open request and context of each session, first come first served, and the results that
    were not polled yet."""

    def __init__(self) -> None:
        self.policy_version = 0
        self.requests: dict[str, GenerationRequest] = {}
        self.contexts: dict[str, Ints] = {}
        self.waiting: deque[str] = deque()
        self.ready: list[GenerationResult] = []

    def __len__(self) -> int:
        return len(self.requests)

    def check_new(self, requests: Sequence[GenerationRequest]) -> None:
        """Raise ValueError if a session would have two requests open."""
        names = [request.session_id for request in requests]
        for index, name in enumerate(names):
            if name in self.requests or name in names[:index]:
                raise ValueError(f"session {name!r} already has a request open")

    def add(self, request: GenerationRequest, limits: ContextLimits) -> None:
        """Queue a request; an impossible one is answered with an error."""
        context = np.array(request.token_ids, dtype=np.int64)
        problem = limits.problem(request, context)
        if problem is not None:
            self.fail(request.session_id, problem)
            return
        self.requests[request.session_id] = request
        self.contexts[request.session_id] = context
        self.waiting.append(request.session_id)

    def close(self, session_id: str) -> bool:
        """The session has no open request any more; False if it had none."""
        if self.requests.pop(session_id, None) is None:
            return False
        del self.contexts[session_id]
        return True

    def answer(self, session_id: str, **fields: Any) -> None:
        """Make a result ready; `fields` are those of `GenerationResult`."""
        result = GenerationResult(session_id, policy_version=self.policy_version, **fields)
        self.ready.append(result)

    def fail(self, session_id: str, reason: str) -> None:
        """Make an error ready."""
        text = f"session {session_id!r}: {reason}"
        self.answer(session_id, finish_reason="error", error=text)

    def take_ready(self) -> list[GenerationResult]:
        """The results that are ready, each once."""
        results, self.ready = self.ready, []
        return results

    def drop_ready(self, session_ids: Collection[str]) -> None:
        """Forget results of sessions."""
        self.ready = [result for result in self.ready if result.session_id not in session_ids]


_WINDOW = 16  # tokens decoded beyond the stop string's own length; pieces may be empty or partial


def end_of_turn_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """The tokenizer's end-of-sequence id and all ids in the model's generation config."""
    generation = getattr(model, "generation_config", None)
    named = getattr(generation, "eos_token_id", None)
    ids: set[int] = set(_as_ids(getattr(tokenizer, "eos_token_id", None))) | set(_as_ids(named))
    return tuple(sorted(ids))


def _as_ids(value: int | Iterable[int] | None) -> Iterable[int]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else value


def ends_with_stop(tokenizer: Any, token_ids: Sequence[int], stops: Sequence[str]) -> bool:
    """Whether the last of `token_ids` completed one of `stops` in the decoded text.

    The text is decoded without special tokens, as in results. The function is called after every
    token, so it is enough to decode a window at the end.
    """
    width = max(map(len, stops)) + _WINDOW
    text = tokenizer.decode(list(token_ids[-width:]), skip_special_tokens=True)
    return any(stop in text for stop in stops)
