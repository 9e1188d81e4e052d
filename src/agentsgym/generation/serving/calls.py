"""What stands behind the endpoint: the protocol of a backend, its answers, and its refusals."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from agentsgym.types import GenerationResult, Message, ModelCall, Tokenizer

Ending = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer to a call: the assistant's `message`, why it ended, and how many tokens were read
    and sampled; for a call that asks for them, the sampled tokens and their `logprobs`."""

    message: Message
    ending: Ending
    prompt_tokens: int
    completion_tokens: int
    logprobs: Sequence[tuple[str, float]] | None = None

    @classmethod
    def of(
        cls,
        message: Message,
        result: GenerationResult,
        prompt_tokens: int,
        tokenizer: Tokenizer | None = None,
    ) -> Self:
        """The answer that `message` makes of an engine's result; with its log-probabilities if
        there is a `tokenizer` to spell them."""
        ending: Ending = "tool_calls" if message.tool_calls else "stop"
        ids, logprobs = result.token_ids or (), None
        if tokenizer is not None and result.logprobs is not None:
            words = [tokenizer.decode([token]) for token in ids]
            logprobs = list(zip(words, result.logprobs, strict=True))
        ending = "length" if result.truncated else ending
        return cls(message, ending, prompt_tokens, len(ids), logprobs)

    def to_json(self) -> str:
        """The answer as a JSON text."""
        own = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(own | {"message": self.message.to_dict()})


class CallRefused(Exception):
    """A call gets an error with this HTTP `status`; the message says what was wrong. `kind` is the
    error's type, `code` its code and `param` the part of the body, in the words of OpenAI's API."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param

    def to_json(self) -> str:
        """The message as a JSON text."""
        return json.dumps({"refused": str(self)})


def reply_from_json(text: str) -> ModelAnswer | CallRefused:
    """The answer, or the refusal, that `to_json` wrote."""
    parts = json.loads(text)
    if "refused" in parts:
        return CallRefused(parts["refused"])
    return ModelAnswer(**parts | {"message": Message.of(parts["message"])})


class Backend(Protocol):
    """What answers the calls. `key` is the client's bearer key, "" without one. Each method raises
    CallRefused, for a wrong key with the status 401."""

    async def models(self, key: str) -> Sequence[str]:
        """The names of the models; any other name of a call is refused, unless there are none."""
        ...

    async def answer(self, key: str, call: ModelCall) -> ModelAnswer:
        """Answer a call. If the client disconnects, the coroutine goes on and its answer waits for
        the client's next try."""
        ...

    async def reward(self, key: str, session: str, value: float) -> None:
        """Reward the last answered call of the key's session. `session` is its id or its key, from
        the path; a client without a bearer key has the latter only, then both are equal."""
        ...
