"""OpenAI's Chat Completions: bodies, answers and streams."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from agentsgym.generation.serving import wire
from agentsgym.generation.serving.wire import (
    Body,
    CallBody,
    Called,
    Flat,
    JsonObject,
    Reply,
    Texts,
)
from agentsgym.types import Message


class _Message(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Texts = Field([])
    tool_calls: list[Annotated[Called, Flat]] = Field([])
    tool_call_id: str = ""

    def message(self) -> Message:
        if self.role == "tool":
            return wire.tool_message(self.tool_call_id, self.content)
        if self.role != "assistant":
            return wire.text_message(self.role, self.content)
        return wire.assistant_message(self.content, self.tool_calls)


class _StreamOptions(Body):
    include_usage: bool = False


class ChatBody(CallBody):
    """The body of a request to /v1/chat/completions."""

    messages: list[_Message] = Field(min_length=1)
    stream_options: _StreamOptions | None = None
    logprobs: bool = False

    def wants_logprobs(self) -> bool:
        """As it says."""
        return self.logprobs

    def conversation(self) -> Iterator[Message]:
        """The messages."""
        return (message.message() for message in self.messages)

    def answer(self, reply: Reply) -> JsonObject:
        """The body of the answer."""
        calls = _calls(reply)
        text = reply.text or (None if calls else "")
        message: JsonObject = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": _logprobs(reply),
            "finish_reason": reply.ending,
        }
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def events(self, reply: Reply) -> Iterator[bytes]:
        """The answer as a stream of events."""
        head = _head(reply, "chat.completion.chunk")

        def chunk(
            delta: JsonObject, ending: str | None = None, logprobs: JsonObject | None = None
        ) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": ending}
            return wire.event({**head, "choices": [choice]})

        yield chunk({"role": "assistant", "content": reply.text}, logprobs=_logprobs(reply))
        for index, call in enumerate(_calls(reply)):
            function = call["function"]
            begun = {**call, "index": index, "function": {**function, "arguments": ""}}
            yield chunk({"tool_calls": [begun]})
            text = function["arguments"]
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        yield chunk({}, reply.ending)
        if self.stream_options and self.stream_options.include_usage:
            yield wire.event({**head, "choices": [], "usage": _usage(reply)})
        yield b"data: [DONE]\n\n"


def _head(reply: Reply, kind: str) -> JsonObject:
    made = {"id": f"chatcmpl-{reply.id}", "object": kind}
    return {**made, "created": reply.created, "model": reply.model}


def _calls(reply: Reply) -> list[JsonObject]:
    return [
        {
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": wire.to_json(arguments)},
        }
        for id, name, arguments in reply.calls
    ]


def _logprobs(reply: Reply) -> JsonObject | None:
    return None if reply.answer.words is None else {"content": reply.logprobs}


def _usage(reply: Reply) -> JsonObject:
    read, written = reply.tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
