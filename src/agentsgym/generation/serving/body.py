"""What the bodies of all APIs share: texts, tools, arguments, refusals, errors, events.

A conversation is read so that an answer which a client sends back equals the message that the
backend returned, and so that the same conversation and tools give the same ModelCall in each API.
"""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from agentsgym.generation.serving.calls import CallRefused, ModelAnswer
from agentsgym.types import Message, ModelCall, ToolCall, ToolSchema

JsonObject = dict[str, Any]

_PIECE = 48  # characters of a stream's event
_TEXTS = ("text", "input_text", "output_text")


class Body(BaseModel):
    """A part of a body; keys that it does not name are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Read a request's body. Raises CallRefused."""
        try:
            return cls.model_validate(from_json(body, allow_inf_nan=False))
        except ValidationError as error:
            raise _refusal(error) from None
        except ValueError as error:
            raise CallRefused(f"the body is not valid JSON: {error}") from None


def _refusal(error: ValidationError) -> CallRefused:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    what = first["msg"].removeprefix("Value error, ")
    return CallRefused(f"{where or 'body'}: {what}"[:500], param=where[:200] or None)


@dataclass(frozen=True)
class Reply:
    """An answer on its way to the client: its id, when the call came, and the model's name."""

    id: str
    created: int
    model: str
    answer: ModelAnswer

    @property
    def text(self) -> str:
        """What the model wrote beside its calls."""
        return self.answer.message["content"]

    @property
    def calls(self) -> list[ToolCall]:
        """The tools that it calls."""
        return self.answer.message.get("tool_calls", [])


class CallBody(Body):
    """A request for an answer, in one of the APIs.

    What concerns sampling (temperature, top_p, seed, penalties, logit_bias) is accepted and has no
    effect, and so are wishes that could only be granted by sampling otherwise (a tool_choice that
    demands a call, no parallel calls): a rollout must be sampled from the policy that is trained,
    with the settings whose probabilities are recorded.
    """

    model: str
    stream: bool | None = None

    @abstractmethod
    def call(self) -> ModelCall:
        """What it asks the model. Raises CallRefused."""

    @abstractmethod
    def answer(self, reply: Reply) -> JsonObject:
        """The body of the answer."""

    @abstractmethod
    def events(self, reply: Reply) -> Iterator[bytes]:
        """The answer as a stream of events."""


# -- fields --------------------------------------------------------------------------------------


def _text(content: Any) -> Any:
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    return "\n".join(text_of(part) for part in content)


def _own_text(content: Any) -> Any:
    # An answer that a client cut into parts was one text.
    if not isinstance(content, list):
        return _text(content)
    return "".join(text_of(part) for part in content)


def text_of(part: Any) -> str:
    """The text of a part of a message. Raises ValueError for a part of another kind."""
    kind = part.get("type", "text") if isinstance(part, dict) else type(part).__name__
    if kind not in _TEXTS:
        raise ValueError(f"the model reads text, and this has a part of type {str(kind)[:60]!r}")
    text = part.get("text")
    if not isinstance(text, str):
        raise ValueError("a part of type 'text' needs a text")
    return text


def _arguments(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return from_json(value or "{}", allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"arguments are not valid JSON: {error}") from None


def _unsupported(value: Any) -> None:
    if value not in (None, False, [], {}):
        raise ValueError("this is not supported here; leave it out")


def _stop(value: Any) -> Any:
    return [value] if isinstance(value, str) else value or []


Text = Annotated[str, BeforeValidator(_text)]
OwnText = Annotated[str, BeforeValidator(_own_text)]
Arguments = Annotated[JsonObject, BeforeValidator(_arguments)]
Unsupported = Annotated[None, BeforeValidator(_unsupported)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
MaxTokens = Annotated[int, Field(ge=1, lt=2**31)] | None
Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]], Field(max_length=16), BeforeValidator(_stop)
]


# -- messages and tools --------------------------------------------------------------------------


def tool_schema(name: str, description: str | None, parameters: JsonObject | None) -> ToolSchema:
    """A tool, the same for each API, so that its prompt is the same too."""
    nothing = {"type": "object", "properties": {}}
    function = {"name": name, "description": description or "", "parameters": parameters or nothing}
    return {"type": "function", "function": function}


def tool_call(id: str, name: str, arguments: JsonObject) -> ToolCall:
    """A call of an answer."""
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def assistant(text: str, calls: Iterable[ToolCall] = ()) -> Message:
    """An answer of the model."""
    message = Message(role="assistant", content=text)
    if made := list(calls):
        message["tool_calls"] = made
    return message


def conversation(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, with the names of the tools whose results they are. Raises CallRefused."""
    names: dict[str, str] = {}
    read = []
    for message in messages:
        for call in message.get("tool_calls", []):
            names[call["id"]] = call["function"]["name"]
        if message["role"] == "tool" and message["tool_call_id"] in names:
            message["name"] = names[message["tool_call_id"]]
        read.append(message)
    if not read:
        raise CallRefused("there is no message to answer", param="messages")
    return tuple(read)


# -- answers -------------------------------------------------------------------------------------


def to_json(value: Any) -> str:
    """JSON in ASCII, which any text survives. Raises ValueError for numbers that JSON lacks."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def arguments_json(call: ToolCall) -> str:
    """A call's arguments as the JSON text that OpenAI's APIs have in their place."""
    return json.dumps(call["function"]["arguments"], allow_nan=False, ensure_ascii=False)


def pieces(text: str) -> Iterator[str]:
    """The text in pieces, for a stream."""
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {to_json(data)}\n\n".encode()
