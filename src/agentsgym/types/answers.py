"""An agent's answer in one step: what becomes of an engine's result, or of a text agent's words."""

from dataclasses import dataclass, replace
from typing import Any, Self

from agentsgym.types.messages import Message, ToolFunction
from agentsgym.types.requests import FinishReason, GenerationResult, ModelCall
from agentsgym.types.supports import NO_SUPPORTS, Supports


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent answers: the `message` of its conversation, whose calls could be read; calls
    that it began and that could not be read are counted in `unread`.

    `token_ids`, `logprobs`, `supports`, `finish_reason` and `policy_version` are those of the
    `GenerationResult`; the first two are None for a text agent. A program is also told how many
    tokens were read (`prompt_tokens`), and the sampled ones as `words` if its call asks for their
    log-probabilities; or the `error` for which its call has no answer.
    """

    message: Message
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    finish_reason: FinishReason = "stop"
    policy_version: int = 0
    unread: int = 0
    prompt_tokens: int = 0
    words: tuple[str, ...] | None = None
    error: str | None = None
    supports: Supports = NO_SUPPORTS

    @classmethod
    def of(cls, result: GenerationResult, message: Message, unread: int = 0) -> Self:
        """The answer that `message` makes of an engine's result."""
        return cls(
            message,
            result.token_ids,
            result.logprobs,
            result.finish_reason,
            result.policy_version,
            unread,
            supports=result.supports,
        )

    @classmethod
    def refused(cls, reason: str) -> Self:
        """What a program gets for a call that the agent can't be shown."""
        return cls(Message("assistant", ""), finish_reason="error", error=reason)

    def to_call(self, call: ModelCall, prompt_tokens: int, tokenizer: Any) -> Self:
        """The answer as the program that made `call` gets it; `tokenizer` spells its tokens."""
        words = None
        if call.logprobs and tokenizer is not None and self.logprobs is not None:
            words = tuple(tokenizer.decode([token]) for token in self.token_ids or ())
        return replace(self, prompt_tokens=prompt_tokens, words=words)

    @property
    def truncated(self) -> bool:
        """Whether the token cap cut it off."""
        return self.finish_reason == "length"

    @property
    def text(self) -> str:
        """What was said beside the calls."""
        return self.message.content

    @property
    def calls(self) -> tuple[ToolFunction, ...]:
        """The name and arguments of each call that could be read."""
        return tuple(call["function"] for call in self.message.tool_calls)

    @property
    def attempted(self) -> int:
        """The number of calls that were begun."""
        return len(self.message.tool_calls) + self.unread

    def metrics(self, executed: int | None = None) -> dict[str, float]:
        """The numbers of calls that were begun, read, answered with a result, and with an error;
        without the last two where a program runs them (None)."""
        read = len(self.message.tool_calls)
        counts = {"attempted": self.attempted, "parsed": read}
        if executed is not None:
            counts |= {"executed": executed, "failed": read - executed}
        return {f"tool_calls/{name}": float(count) for name, count in counts.items()}
