"""Anthropic's Messages: bodies, answers and streams."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from agentsgym.generation.serving import wire
from agentsgym.generation.serving.calls import CallRefused
from agentsgym.generation.serving.wire import Body, CallBody, Called, JsonObject, Reply, Texts
from agentsgym.types import Message

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class _TextBlock(Body):
    type: Literal["text"]
    text: str


class _ToolUse(Called):
    type: Literal["tool_use"]


class _ToolResult(Body):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Texts = Field([])


def _blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


_ByType = Field(discriminator="type")
_Blocks = BeforeValidator(_blocks)


class _UserTurn(Body):
    role: Literal["user"]
    content: Annotated[list[Annotated[_TextBlock | _ToolResult, _ByType]], _Blocks]

    def messages(self) -> Iterator[Message]:
        """The messages in their order; texts that follow each other are one."""
        texts: list[str] = []
        for block in self.content:
            if isinstance(block, _TextBlock):
                texts.append(block.text)
                continue
            if texts:
                yield wire.text_message("user", texts)
            texts = []
            yield wire.tool_message(block.tool_use_id, block.content)
        if texts or not self.content:
            yield wire.text_message("user", texts)


class _AssistantTurn(Body):
    role: Literal["assistant"]
    content: Annotated[list[Annotated[_TextBlock | _ToolUse, _ByType]], _Blocks]

    def messages(self) -> Iterator[Message]:
        texts = [block.text for block in self.content if isinstance(block, _TextBlock)]
        calls = [block for block in self.content if isinstance(block, _ToolUse)]
        yield wire.assistant_message(texts, calls)


class _SystemTurn(Body):
    role: Literal["system", "developer"]
    content: Texts

    def messages(self) -> Iterator[Message]:
        yield wire.text_message(self.role, self.content)


_Turn = Annotated[_UserTurn | _AssistantTurn | _SystemTurn, Field(discriminator="role")]


class MessagesBody(CallBody):
    """The body of a request to /v1/messages."""

    messages: list[_Turn] = Field(min_length=1)
    system: Texts = Field([])

    @classmethod
    def _check(cls, given: JsonObject) -> None:
        super()._check(given)
        if given.get("thread"):  # with this code, Anthropic's client goes on without threads
            why = "the server keeps no conversations: send all messages each time"
            raise CallRefused(why, code="thread_unsupported_request", param="thread")

    def conversation(self) -> Iterator[Message]:
        """The messages. Raises CallRefused."""
        if self.messages[-1].role == "assistant":
            why = "the last message is the assistant's: answers cannot be begun here"
            raise CallRefused(why, param="messages")
        if any(self.system):
            yield wire.text_message("system", self.system)
        for turn in self.messages:
            yield from turn.messages()

    def answer(self, reply: Reply) -> JsonObject:
        """The body of the answer."""
        calls: list[JsonObject] = [
            {"type": "tool_use", "id": id, "name": name, "input": arguments}
            for id, name, arguments in reply.calls
        ]
        text = [{"type": "text", "text": reply.text}] if reply.text or not calls else []
        read, written = reply.tokens
        return {
            "id": f"msg_{reply.id}",
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "content": [*text, *calls],
            "stop_reason": _STOP_REASONS[reply.ending],
            "stop_sequence": None,
            "usage": {"input_tokens": read, "output_tokens": written},
        }

    def events(self, reply: Reply) -> Iterator[bytes]:
        """The answer as a stream of events."""
        whole = self.answer(reply)
        begun = {**whole, "content": [], "stop_reason": None}
        begun["usage"] = {**whole["usage"], "output_tokens": 0}
        yield _event("message_start", message=begun)
        for index, block in enumerate(whole["content"]):
            yield from _block_events(index, block)
        ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _event("message_delta", delta=ending, usage=whole["usage"])
        yield _event("message_stop")

    @staticmethod
    def error(refused: CallRefused) -> JsonObject:
        """The body of an error, in Anthropic's form."""
        other = "invalid_request_error" if refused.status < 500 else "api_error"
        shown: JsonObject = {"type": _ERRORS.get(refused.status, other), "message": str(refused)}
        if refused.code is not None:
            shown["details"] = {"error_code": refused.code}
        return {"type": "error", "error": shown}


def _block_events(index: int, block: JsonObject) -> Iterator[bytes]:
    if block["type"] == "text":
        begun, kind, key, value = {**block, "text": ""}, "text_delta", "text", block["text"]
    else:
        begun, kind, key = {**block, "input": {}}, "input_json_delta", "partial_json"
        value = wire.to_json(block["input"])
    yield _event("content_block_start", index=index, content_block=begun)
    yield _event("content_block_delta", index=index, delta={"type": kind, key: value})
    yield _event("content_block_stop", index=index)


def _event(kind: str, **data: Any) -> bytes:
    return wire.event({"type": kind, **data}, kind)
