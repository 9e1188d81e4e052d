"""The small protocols that a higher room implements and a lower one calls."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from agentsgym.types.actions import (
    EngineStats,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
)


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
    """Whoever plays. `agent_state` is None at a rollout's first step, then what was returned."""

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """Answer the conversation `messages` with the action's text and the agent's next state."""
        ...


class Engine(Protocol):
    """Samples actions for many sessions at once.

    A session has at most one request open. `poll` returns the results that are ready, waiting
    for at least one while any request is open; with none open it returns an empty list. A request
    that fails comes back as a result with `finish_reason="error"`, never as an exception.
    `release` forgets all about sessions (open requests, caches); unknown ids are ignored.
    """

    tokenizer: Tokenizer
    capacity: int

    def submit(self, requests: Sequence[GenerationRequest]) -> None: ...

    def poll(self) -> list[GenerationResult]: ...

    def cancel(self, session_ids: Sequence[str]) -> None: ...

    def release(self, session_ids: Sequence[str]) -> None: ...

    @property
    def stats(self) -> EngineStats: ...


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
