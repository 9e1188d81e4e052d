"""The protocols that a higher package implements and a lower one calls: tokenizers, agents,
engines, and places that play rollouts.

`Engine` is enough for sampling. A trainer also passes weights, which a `TrainableEngine` accepts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from typing_extensions import get_protocol_members

from agentsgym.types.records import Rollout
from agentsgym.types.requests import (
    EngineStats,
    GenerationRequest,
    GenerationResult,
    RolloutRequest,
    SamplingParams,
)
from agentsgym.types.text import docs_page
from agentsgym.types.trials import TrialInfo


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that transcripts need."""

    chat_template: Any
    pad_token_id: int | None
    eos_token_id: int | None
    all_special_ids: list[int]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, token_ids: Any, *, skip_special_tokens: bool = False) -> str: ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


@runtime_checkable
class Agent(Protocol):
    """A player. `agent_state` is None at a rollout's first step, then the last returned state."""

    def get_action(self, messages: list[dict[str, Any]], agent_state: Any) -> tuple[str, Any]:
        """Answer the conversation `messages` with the action's text and the agent's next state."""
        ...


class SessionView(Protocol):
    """A read-only view of one session; every access returns its current state."""

    @property
    def env(self) -> Any:
        """The environment (a `MultistepEnv`): its configuration and its planner.
        The state of the session may be in a worker process."""
        ...

    @property
    def task_data(self) -> Mapping[str, Any]:
        """The session's task."""
        ...

    @property
    def trial(self) -> TrialInfo:
        """The running episode's position in its trial, without `last_state`."""
        ...

    @property
    def actions(self) -> tuple[str, ...]:
        """The agent's actions in the running episode."""
        ...

    @property
    def asks_for_note(self) -> bool:
        """Whether the current request is for a reflection on the episode, or a note in it."""
        ...

    def admissible_actions(self) -> Sequence[str] | None:
        """The environment's `admissible_actions` in the current state."""
        ...


class PrivilegedAgent(ABC):
    """An agent that needs more than the conversation, for instance the task or the number of the
    episode. `for_session` returns the agent that plays a given session."""

    @abstractmethod
    def for_session(self, session: SessionView) -> Agent:
        """The agent that plays this session. It is called for every episode and reflection, so an
        agent that remembers data keeps it in its agent state."""

    def get_action(self, messages: list[dict[str, Any]], agent_state: Any) -> tuple[str, Any]:
        """Raises LookupError: this agent plays sessions, not conversations."""
        raise LookupError(
            f"{type(self).__name__} needs a session, not only its messages: play it with run_trial"
        )


class Engine(Protocol):
    """Samples actions for many sessions at once.

    A session has at most one request open. `poll` returns the results that are ready, waiting
    for at least one while any request is open; with none open it returns an empty list. If the
    engine has a method `interrupt()`, which any thread may call, that ends the wait of a `poll`, or
    of the next one, perhaps without a result. A request that fails comes back as a result with
    `finish_reason="error"`, never as an exception.
    `release` drops all data of sessions (open requests, caches); unknown ids are ignored.
    `tokenizer` is None for an engine that takes messages and only returns text.
    """

    tokenizer: Tokenizer | None
    capacity: int

    def submit(self, requests: Sequence[GenerationRequest]) -> None: ...

    def poll(self) -> list[GenerationResult]: ...

    def release(self, session_ids: Sequence[str]) -> None: ...

    @property
    def stats(self) -> EngineStats: ...


def _alone(values: list[Any]) -> list[Any]:
    return values


Gather = Callable[[list[Any]], list[Any]]
"""Joins the lists of all ranks, in rank order; every rank must call it."""


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """The weights that a trainer passes to an engine.

    Args:
        model: the trained module, without the wrappers of distributed training.
        version: the optimizer's step; tokens sampled from now on record it.
        directory: a folder for weight files that other processes read.
        changed: False if the weights are the same as in the previous update.
        rank: the number of this process among the training processes.
        gather: joins lists of all ranks.
    """

    model: Any
    version: int
    directory: Path
    changed: bool = True
    rank: int = 0
    gather: Gather = field(default=_alone)


class TrainableEngine(Engine, Protocol):
    """An engine that a trainer can update with the weights that it trains.

    It samples token ids with their log-probabilities, so it must have a tokenizer.
    """

    @property
    def policy_version(self) -> int:
        """The version of the weights that new requests use."""
        ...

    @property
    def can_generate_ahead(self) -> bool:
        """Whether it can sample during the optimizer's work, from a copy of the weights. Then
        `update_weights` may come from another thread while requests are open."""
        ...

    def update_weights(self, update: WeightUpdate) -> None:
        """Sample from these weights from now on. Called on every rank before each generation and
        evaluation; returns as soon as `update.model` may change. Open requests, which only an
        engine with `can_generate_ahead` has then, are answered with their old weights, and new
        ones, in time, with these. Raises if the weights cannot be used."""
        ...

    def close(self) -> None:
        """Close connections; may be called twice. The engine cannot be used afterwards."""
        ...


def trainable(engine: Any) -> TrainableEngine:
    """The engine, if a trainer can use it. Raises TypeError with the names of missing members."""
    missing = [
        name for name in sorted(get_protocol_members(TrainableEngine)) if not hasattr(engine, name)
    ]
    if missing:
        raise TypeError(
            f"{type(engine).__name__} can't be trained with: it lacks {', '.join(missing)} "
            f"(agentsgym.types.TrainableEngine; {docs_page('Engines and models')})"
        )
    if engine.tokenizer is None:
        raise TypeError(
            f"{type(engine).__name__} has no tokenizer: it answers with text alone, and without "
            "the sampled token ids nothing can be trained"
        )
    result: TrainableEngine = engine
    return result


@runtime_checkable
class EngineAgent(Agent, Protocol):
    """An agent whose actions an engine samples, so that ids and logprobs are exact."""

    engine: Engine
    sampling: SamplingParams


def wait_for(engine: Engine, session_id: str) -> GenerationResult:
    """Poll until the session's only open request is answered; for callers that play alone."""
    while True:
        for result in engine.poll():
            if result.session_id == session_id:
                return result


def records_supports(engine: Any) -> bool:
    """Whether an engine samples among given answers and says what each token was chosen from."""
    return bool(getattr(engine, "records_supports", False))


def check_submitted(requests: Sequence[GenerationRequest], open_sessions: Container[str]) -> None:
    """Raise ValueError if a session would have two requests open; for an engine's `submit`."""
    names = [request.session_id for request in requests]
    for index, name in enumerate(names):
        if name in open_sessions or name in names[:index]:
            raise ValueError(f"session {name!r} already has a request open")


class RolloutSource(Protocol):
    """Plays requests in the background and hands back each rollout when it is over.

    Requests begin in the order in which they are submitted, and end in any order. A rollout that
    fails comes back with its error; an error that ends the playing itself is raised by the next
    call, after the rollouts that were over before.
    """

    def submit(self, requests: Sequence[RolloutRequest]) -> None:
        """Play these too. Does not wait for any rollout."""
        ...

    def poll(self, timeout: float | None = None) -> list[Rollout]:
        """The rollouts that ended since the last call, in the order in which they ended.

        Waits for at least one while any request is open, `timeout` seconds at most (None: without
        limit). With no request open it returns an empty list.
        """
        ...

    def use_weights(self, update: WeightUpdate) -> None:
        """Let every action that is requested from now on be sampled from these weights; sessions go
        on with them. An action that is being sampled ends with the weights it began with."""
        ...

    def play(self, requests: Sequence[RolloutRequest], sampling: SamplingParams) -> list[Rollout]:
        """Play these to their end, with other sampling settings, and return them in their order.
        They begin before what waits, beside what is being played."""
        ...

    @property
    def idle_seconds(self) -> float:
        """Seconds so far in which nothing could be sampled because there was no request; the mean
        if there are several places."""
        ...

    def close(self) -> None:
        """End the playing; open requests are dropped. Ends within seconds, whatever hangs, and may
        be called twice."""
        ...
