"""Requests and results: actions of an agent or an engine, and rollouts of a task."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from agentsgym.types.choices import Answers
from agentsgym.types.messages import Message, ToolSchema
from agentsgym.types.records import Rollout
from agentsgym.types.supports import NO_SUPPORTS, Supports

FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling settings of one action.

    `temperature` 0 is greedy. `top_p` 1.0 and `top_k` 0 switch truncation off. An action ends at
    the model's end-of-turn token, at one of `stop_token_ids`, to which a session adds what ends a
    turn in its chat template, when its text contains one of `stop`, or after `max_tokens`. Raises
    ValueError for a value outside its range.
    """

    max_tokens: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.max_tokens, float) or self.max_tokens < 1:
            raise ValueError(
                f"max_tokens must be a whole number of at least 1, got {self.max_tokens}"
            )
        if not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature must be a finite number of at least 0, got {self.temperature}"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if isinstance(self.top_k, float) or self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or a positive number, got {self.top_k}")
        stop: object = self.stop
        if isinstance(stop, str):  # each of its letters would become a stop string
            raise ValueError(f"stop must be a tuple of texts, got {self.stop!r}")
        if any(not text for text in self.stop):
            raise ValueError("stop strings must not be empty")

    @property
    def truncates(self) -> bool:
        """Whether top-p or top-k cuts the distribution."""
        return self.top_p < 1.0 or self.top_k > 0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A session's request for one action of its agent (a session has at most one request open).

    `token_ids` is the whole context (empty without a tokenizer); an engine that kept the session's
    cache only reads the new tokens. `messages` is the same conversation as text. Both are live
    views that only grow while the request is open. The noise of the k-th sampled token depends only
    on (`seed`, `sampled_before` + k). With `choices` the answer is one of them, chosen token by
    token among the ids that go on to one; it ends with them, and nowhere else.
    """

    session_id: str
    token_ids: Sequence[int]
    sampling: SamplingParams
    seed: int = 0
    sampled_before: int = 0
    messages: Sequence[Message] = ()
    choices: Answers | None = None


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """The answer to a GenerationRequest: an agent's action in one step.

    `token_ids` are the ids that the engine sampled, including the end-of-turn token, and
    `logprobs` (nats) their log-probabilities at the sampling temperature, among the ids that
    `supports` name: those that top-p and top-k left, or that the request allowed. Ids and
    log-probabilities are None for an agent that only returns text. `error` has the reason if
    `finish_reason` is "error". Raises ValueError if there are not as many logprobs as tokens.
    """

    session_id: str
    token_ids: tuple[int, ...] | None = ()
    logprobs: tuple[float, ...] | None = ()
    text: str = ""
    finish_reason: FinishReason = "stop"
    error: str | None = None
    policy_version: int = 0
    supports: Supports = NO_SUPPORTS

    def __post_init__(self) -> None:
        if self.token_ids is None:
            return
        if self.logprobs is None or len(self.logprobs) != len(self.token_ids):
            count = None if self.logprobs is None else len(self.logprobs)
            raise ValueError(
                f"{len(self.token_ids)} sampled tokens need as many logprobs, got {count}"
            )

    @classmethod
    def of_text(cls, text: str, session_id: str = "") -> Self:
        """The answer of an agent that only returns text."""
        return cls(session_id, None, None, text)


Form = tuple[Literal["json", "regex", "call"], str]
"""What an answer must be: JSON by a schema, given as JSON; a text that a regular expression
matches; or the call of the tool with a name, of any tool with ""."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A program's call of a model: the whole conversation `messages`, and the `tools` that it
    offers. `max_tokens` (None: no wish) limits the answer, which also ends at one of `stop`;
    `logprobs` asks for those of its tokens. `form` is what it demands of the answer."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    form: Form | None = None


Prompt = str | Sequence[Mapping[str, Any]] | ModelCall
"""What an agent answers: a text of the user, the messages after its last answer, or a call."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """An engine's counts since its creation.

    `occupancy` is the mean over forward passes of (sequences in the pass) / min(open requests,
    capacity): below 1 if slots were empty although requests were waiting.
    """

    forward_passes: int = 0
    sampled_tokens: int = 0
    read_tokens: int = 0
    occupancy: float = 1.0
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a recorded rollout: its first `nodes` nodes, and what was read next.

    Raises ValueError if it has no such node that was answered.
    """

    rollout: Rollout
    nodes: int

    def __post_init__(self) -> None:
        recorded = self.rollout.nodes
        answered = sum(node.answer is not None for node in recorded)
        if not 0 <= self.nodes < answered:
            raise ValueError(
                f"rollout {self.rollout.session_id} has {answered} answers, numbered from 0; it "
                f"cannot be played on from number {self.nodes}"
            )

    def answer(self, number: int, session_id: str) -> GenerationResult:
        """The recorded answer of a node, as an engine, or a text agent, gave it."""
        rollout, step = self.rollout, self.rollout.nodes[number]
        _, acts, stop = rollout.at[number].tolist()
        if not step.sampled or acts == stop:
            return GenerationResult.of_text(step.action, session_id)
        return GenerationResult(
            session_id,
            tuple(rollout.token_ids[acts:stop].tolist()),
            tuple(rollout.logprobs[acts:stop].tolist()),
            "" if step.answer is None else step.answer.content,
            "length" if step.truncated else "stop",
            policy_version=step.policy_version,
            supports=rollout.supports.between(acts, stop),
        )


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """One rollout to play: a dataset row's task, its group and its number in the group.

    `seed` is the seed of the sampling noise and `session_id` the name of the session. No row of
    tokens becomes longer than `max_rollout_tokens` (None: no limit). With a `prefix` it is a
    branch: the recorded answers are repeated, and the agent plays on from there. The noise of a
    branch's token depends on the seed, the number of its node and its place in the answer, so that
    two branches with one seed have the same noise at the same node, whatever was said before.
    """

    env_class_path: str
    env_config: Mapping[str, Any]
    task_data: Mapping[str, Any]
    group: int
    index: int
    seed: int
    session_id: str
    max_rollout_tokens: int | None = None
    prefix: Prefix | None = None

    @classmethod
    def of(
        cls,
        row: Mapping[str, Any],
        group: int,
        index: int,
        seed: int,
        *,
        max_rollout_tokens: int | None = None,
    ) -> Self:
        """The request for rollout number `index` of `group`, on a row of the dataset schema."""
        return cls(
            row["env_class_path"],
            row["env_config"],
            row["task_data"],
            group,
            index,
            seed,
            f"{group:05d}-{index:03d}-{seed:016x}",
            max_rollout_tokens,
        )

    @classmethod
    def branch(cls, rollout: Rollout, nodes: int, index: int, seed: int) -> Self:
        """The request to play on from a rollout, instead of its answer number `nodes` (in the
        order of play, from 0), as number `index` of its group. Raises ValueError if there is no
        such answer."""
        return cls(
            rollout.env_class_path,
            rollout.env_config,
            rollout.task_data,
            rollout.group,
            index,
            seed,
            f"{rollout.session_id}@{nodes}-{seed:016x}",
            prefix=Prefix(rollout, nodes),
        )


def session_seed(*parts: object) -> int:
    """A 63-bit seed that depends only on these parts (blake2b of their reprs)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


# The sentence below, and what endpoints say: OpenAI and vLLM, the former's code, llama.cpp.
_OVERFLOW = re.compile(
    r"leaves no room in the model's \d+ positions|maximum context length|context_length_exceeded"
    r"|exceeds? the available context size",
    re.IGNORECASE,
)


def context_overflow(tokens: int, positions: int) -> str:
    """The reason why a model of so many `positions` cannot read a context of so many `tokens`."""
    return f"the context of {tokens} tokens leaves no room in the model's {positions} positions"


def is_context_overflow(error: str | None) -> bool:
    """Whether the error of a rollout says that the conversation is longer than the context of the
    model, which an endpoint says in words only."""
    return error is not None and _OVERFLOW.search(error) is not None
