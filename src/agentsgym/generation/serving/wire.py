"""What the APIs share: how a request is read, and what answers are made of.

A conversation is read so that an answer which a client sends back equals the message that the
backend returned, and so that the same conversation and tools give the same ModelCall in each API.
"""

import json
import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from agentsgym.generation.serving.calls import CallRefused, demanded_call, demanded_format
from agentsgym.types import Answer, Message, ModelCall, ToolCall, ToolSchema
from agentsgym.types.messages import tool_call

logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]

_TEXTS = ("text", "input_text", "output_text")
# Keys that would change what a request means; what only concerns OpenAI's or Anthropic's servers is
# ignored.
_UNSUPPORTED = (
    *("functions", "audio", "web_search_options", "logprobs", "top_logprobs"),
    *("previous_response_id", "conversation", "background", "prompt"),
    *("container", "mcp_servers"),
)
# Tools that the servers of OpenAI and Anthropic run by themselves.
_HOSTED = (
    "web_search",
    "web_fetch",
    "file_search",
    "code_interpreter",
    "code_execution",
    "image_gen",
)


class Body(BaseModel):
    """A part of a request's body; keys that it does not name are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, part: Any) -> JsonObject:
        if not isinstance(part, dict):
            raise ValueError("it must be a JSON object")
        given = {key: value for key, value in part.items() if value is not None}
        cls._check(given)
        return given

    @classmethod
    def _check(cls, given: JsonObject) -> None:
        """Raise ValueError for what cannot be done."""

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
    where = ".".join(str(part) for part in first["loc"])[:200]
    what = first["msg"].removeprefix("Value error, ")
    return CallRefused(f"{where or 'body'}: {what}"[:500], param=where or None)


# -- fields --------------------------------------------------------------------------------------


def _texts(content: Any) -> Any:
    if isinstance(content, list):
        return [_text(part) for part in content]
    return [content]


def _text(part: Any) -> Any:
    kind = part.get("type", "text") if isinstance(part, dict) else type(part).__name__
    if kind not in _TEXTS:
        raise ValueError(f"the model reads text, and this has a part of type {str(kind)[:60]!r}")
    return part.get("text")


def _arguments(value: Any) -> JsonObject:
    try:
        if isinstance(value, str):
            value = from_json(value.strip() or "null", allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"the arguments are not valid JSON: {error}") from None
    if not isinstance(value, dict | None):
        raise ValueError("the arguments must be a JSON object, or nothing")
    return value or {}


def _strings(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _flat(value: Any) -> Any:
    # Chat Completions has a function within a tool and within a call.
    function = value.get("function") if isinstance(value, dict) else None
    return {**value, **function} if isinstance(function, dict) else value


Texts = Annotated[list[str], BeforeValidator(_texts)]
"""The texts of a message: one, or those of its parts."""

Flat = BeforeValidator(_flat)
"""For a tool or a call, whose function may be a part of it."""

Name = Annotated[str, Field(min_length=1, max_length=256)]


class Called(Body):
    """A call in an answer; its arguments are JSON, also as a string. None, null and an empty text
    are no arguments. A model may call a name of any length."""

    id: str = Field(validation_alias=AliasChoices("call_id", "id"))
    name: str = Field(min_length=1)
    arguments: Annotated[JsonObject, BeforeValidator(_arguments)] = Field(
        {}, validation_alias=AliasChoices("arguments", "input")
    )

    def tool_call(self) -> ToolCall:
        """The call as messages have it."""
        return tool_call(self.id, self.name, self.arguments)


class _Tool(Body):
    type: str = "function"
    name: Name
    namespace: str | None = None
    description: str | None = None
    parameters: JsonObject | None = Field(
        None, validation_alias=AliasChoices("parameters", "input_schema")
    )

    @classmethod
    def _check(cls, given: JsonObject) -> None:
        kind = given.get("type", "function")
        if kind != "function" and not (kind == "custom" and "input_schema" in given):
            raise ValueError(
                f"a tool is a function whose input has a JSON schema, not {str(kind)[:60]!r}"
            )

    def schema_for_templates(self) -> ToolSchema:
        function = {
            "name": self.name,
            "description": self.description or "",
            "parameters": self.parameters or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}


def _offered(tools: Any) -> Any:
    """The tools of which the model is told: those of a namespace one by one, and none that only the
    provider's servers could run."""
    offered: list[Any] = []
    for tool in tools if isinstance(tools, list) else [tools]:
        kind = str(tool.get("type", "")) if isinstance(tool, dict) else ""
        if kind == "namespace":
            inner = _offered(tool.get("tools"))
            space = {"namespace": tool.get("name")}
            offered += [{**one, **space} if isinstance(one, dict) else one for one in inner]
        elif kind.startswith(_HOSTED):
            _warn_hosted(kind[:60])
        else:
            offered.append(tool)
    return offered


@lru_cache(maxsize=64)
def _warn_hosted(kind: str) -> None:
    logger.warning(
        "A client offers the tool %r, which only its provider's servers run: the model "
        "is not told of it.",
        kind,
    )


# -- requests ------------------------------------------------------------------------------------


class CallBody(Body):
    """A request for an answer, in one of the APIs.

    What concerns sampling (temperature, top_p, seed, penalties, logit_bias, no parallel calls) is
    accepted and has no effect: a rollout is sampled from the policy that is trained, with the
    settings whose probabilities are recorded. A format of the answer, where the API has its own,
    and a tool_choice that demands a call are forms to which the policy is held.
    """

    model: str
    stream: bool = False
    max_tokens: int | None = Field(
        None,
        ge=1,
        lt=2**31,
        validation_alias=AliasChoices("max_completion_tokens", "max_output_tokens", "max_tokens"),
    )
    stop: Annotated[list[Name], Field(max_length=16), BeforeValidator(_strings)] = Field(
        [], validation_alias=AliasChoices("stop", "stop_sequences")
    )
    tools: Annotated[list[Annotated[_Tool, Flat]], BeforeValidator(_offered)] = Field([])
    tool_choice: Any = None
    response_format: Any = None
    text: Any = None
    output_config: Any = None
    output_format: Any = None
    structured_outputs: Any = None

    @classmethod
    def _check(cls, given: JsonObject) -> None:
        for key in _UNSUPPORTED:
            if given.get(key) and key not in cls.model_fields:
                raise ValueError(f"{key} is not supported here; leave it out")
        if given.get("n", 1) != 1:
            raise ValueError("n must be 1: each answer is a step of its own")

    def call(self) -> ModelCall:
        """What it asks the model. Raises CallRefused."""
        tools = [] if self.tool_choice in ("none", {"type": "none"}) else self.tools
        return ModelCall(
            _with_names(self.conversation()),
            tuple(tool.schema_for_templates() for tool in tools),
            self.max_tokens,
            tuple(self.stop),
            self.wants_logprobs(),
            demanded_call([tool.name for tool in tools], self.tool_choice) or demanded_format(self),
        )

    def wants_logprobs(self) -> bool:
        """Whether it asks for the log-probabilities of the answer's tokens."""
        return False

    @abstractmethod
    def conversation(self) -> Iterable[Message]:
        """The messages. Raises CallRefused."""

    @abstractmethod
    def answer(self, reply: "Reply") -> JsonObject:
        """The body of the answer."""

    @abstractmethod
    def events(self, reply: "Reply") -> Iterator[bytes]:
        """The answer as a stream of events."""

    @staticmethod
    def error(refused: CallRefused) -> JsonObject:
        """The body of an error, in OpenAI's form."""
        shown = {"message": str(refused), "type": refused.kind}
        return {"error": {**shown, "param": refused.param, "code": refused.code}}


def _with_names(messages: Iterable[Message]) -> tuple[Message, ...]:
    # Templates of some models name the tool whose result a message is.
    names: dict[str, str] = {}
    read = []
    for message in messages:
        for call in message.tool_calls:
            names[call["id"]] = call["function"]["name"]
        name = names.get(message.tool_call_id or "") if message.role == "tool" else None
        read.append(replace(message, name=name) if name is not None else message)
    return tuple(read)


def text_message(role: str, texts: Iterable[str]) -> Message:
    """A message of the system or the user, in one or several parts."""
    return Message(role="system" if role == "developer" else role, content="\n".join(texts))


def tool_message(call: str, texts: Iterable[str]) -> Message:
    """The result of a tool's call."""
    return Message(role="tool", content="\n".join(texts), tool_call_id=call)


def assistant_message(texts: Iterable[str], calls: Sequence[Called] = ()) -> Message:
    """An earlier answer of the model. A client may have cut its text, which was one."""
    return Message("assistant", "".join(texts), tuple(call.tool_call() for call in calls))


# -- answers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """An answer on its way to the client: its id, when the call came, and the model's name."""

    id: str
    created: int
    model: str
    answer: Answer

    @property
    def text(self) -> str:
        """What the model wrote beside its calls."""
        return self.answer.text

    @property
    def ending(self) -> str:
        """Why it ended: "length", "tool_calls" or "stop"."""
        if self.answer.truncated:
            return "length"
        return "tool_calls" if self.answer.message.tool_calls else "stop"

    @property
    def calls(self) -> list[tuple[str, str, JsonObject]]:
        """The id, name and arguments of each call."""
        calls = self.answer.message.tool_calls
        return [
            (call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls
        ]

    @property
    def logprobs(self) -> list[JsonObject]:
        """The log-probability of each sampled token, as OpenAI's APIs have it, if the call asks for
        them. A token that is a part of a character has no bytes."""
        words = self.answer.words or ()
        return [
            {
                "token": text,
                "logprob": value,
                "bytes": None if "\ufffd" in text else list(text.encode()),
                "top_logprobs": [],
            }
            for text, value in zip(words, self.answer.logprobs or (), strict=False)
        ]

    @property
    def tokens(self) -> tuple[int, int]:
        """How many were read and how many written."""
        return self.answer.prompt_tokens, len(self.answer.token_ids or ())


def to_json(value: Any) -> str:
    """JSON in ASCII, which any text survives. Raises ValueError for numbers that JSON lacks."""
    return json.dumps(value, allow_nan=False)


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {to_json(data)}\n\n".encode()
