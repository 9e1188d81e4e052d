"""OpenAI's Chat Completions: bodies, answers and streams."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from agentsgym.generation.serving.body import (
    Arguments,
    Body,
    CallBody,
    JsonObject,
    MaxTokens,
    Name,
    OwnText,
    Reply,
    Stop,
    Text,
    Unsupported,
    arguments_json,
    assistant,
    conversation,
    event,
    pieces,
    tool_call,
    tool_schema,
)
from agentsgym.types import Message, ModelCall


class CalledFunction(Body):
    """The function of a call."""

    name: Name
    arguments: Arguments


class Called(Body):
    """A call in an assistant's message."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class FromSystem(Body):
    """Instructions."""

    role: Literal["system", "developer"]
    content: Text

    def message(self) -> Message:
        """The message, as templates read it."""
        return Message(role="system", content=self.content)


class FromUser(Body):
    """What the user says."""

    role: Literal["user"]
    content: Text

    def message(self) -> Message:
        """The message, as templates read it."""
        return Message(role="user", content=self.content)


class FromAssistant(Body):
    """An earlier answer."""

    role: Literal["assistant"]
    content: OwnText = ""
    tool_calls: list[Called] | None = None

    def message(self) -> Message:
        """The message, as templates read it."""
        calls = self.tool_calls or []
        return assistant(
            self.content,
            [tool_call(call.id, call.function.name, call.function.arguments) for call in calls],
        )


class FromTool(Body):
    """The result of a call."""

    role: Literal["tool"]
    content: Text
    tool_call_id: str

    def message(self) -> Message:
        """The message, as templates read it."""
        return Message(role="tool", content=self.content, tool_call_id=self.tool_call_id)


AnyMessage = Annotated[
    FromSystem | FromUser | FromAssistant | FromTool, Field(discriminator="role")
]


class Function(Body):
    """What a tool is."""

    name: Name
    description: str | None = None
    parameters: JsonObject | None = None


class Tool(Body):
    """A tool that the model may call."""

    type: Literal["function"]
    function: Function


class StreamOptions(Body):
    """What a stream contains."""

    include_usage: bool | None = None


def only_text(value: Any) -> None:
    """Refuse an answer in another form than text, in OpenAI's words for it. Raises ValueError."""
    if value is not None and not (isinstance(value, dict) and value.get("type") == "text"):
        raise ValueError("answers are text as the model writes it; schemas are not supported here")


class ChatBody(CallBody):
    """The body of a request to /v1/chat/completions."""

    messages: list[AnyMessage] = Field(min_length=1)
    tools: list[Tool] | None = None
    tool_choice: Any = None
    max_tokens: MaxTokens = None
    max_completion_tokens: MaxTokens = None
    stop: Stop = Field(default_factory=list)
    n: Literal[1] | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    stream_options: StreamOptions | None = None
    response_format: Annotated[None, BeforeValidator(only_text)] = None
    functions: Unsupported = None
    audio: Unsupported = None
    web_search_options: Unsupported = None

    def call(self) -> ModelCall:
        """What it asks the model."""
        tools = [tool.function for tool in self.tools or [] if self.tool_choice != "none"]
        return ModelCall(
            conversation(message.message() for message in self.messages),
            tuple(tool_schema(tool.name, tool.description, tool.parameters) for tool in tools),
            self.max_completion_tokens or self.max_tokens,
            tuple(self.stop),
        )

    def answer(self, reply: Reply) -> JsonObject:
        """The body of the answer."""
        calls = _calls(reply)
        message: JsonObject = {"role": "assistant", "content": reply.text, "refusal": None}
        if calls:
            message |= {"content": reply.text or None, "tool_calls": calls}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(reply),
            "finish_reason": reply.answer.ending,
        }
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def events(self, reply: Reply) -> Iterator[bytes]:
        """The answer as a stream of events."""
        head = _head(reply, "chat.completion.chunk")

        def chunk(delta: JsonObject, **more: Any) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} | more
            return event({**head, "choices": [choice]})

        start = {"role": "assistant", "content": ""}
        yield chunk(start, logprobs=self._logprobs(reply))
        for text in pieces(reply.text):
            yield chunk({"content": text})
        for index, call in enumerate(_calls(reply)):
            function = call["function"]
            begun = {**call, "index": index, "function": {**function, "arguments": ""}}
            yield chunk({"tool_calls": [begun]})
            for text in pieces(function["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        yield chunk({}, finish_reason=reply.answer.ending)
        if self.stream_options and self.stream_options.include_usage:
            yield event({**head, "choices": [], "usage": _usage(reply)})
        yield b"data: [DONE]\n\n"

    def _logprobs(self, reply: Reply) -> JsonObject | None:
        """The sampled tokens by their ids (in the form that vLLM has for this): what decodes to a
        text may have been sampled otherwise."""
        if not self.logprobs:
            return None
        sampled = zip(reply.answer.token_ids, reply.answer.logprobs, strict=True)
        tokens: list[JsonObject] = [
            {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
            for token, logprob in sampled
        ]
        return {"content": tokens, "refusal": None}


def _head(reply: Reply, kind: str) -> JsonObject:
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": kind,
        "created": reply.created,
        "model": reply.model,
    }


def _calls(reply: Reply) -> list[JsonObject]:
    return [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["function"]["name"], "arguments": arguments_json(call)},
        }
        for call in reply.calls
    ]


def _usage(reply: Reply) -> JsonObject:
    read, written = reply.answer.prompt_tokens, len(reply.answer.token_ids)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
