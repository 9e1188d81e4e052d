"""The small protocols that a higher room implements and a lower one calls."""

from typing import Any, Protocol, runtime_checkable

from agentsgym.types.actions import Message


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

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """Answer the conversation `messages` with the action's text and the agent's next state."""
        ...
