"""OpenAI's Responses: bodies, answers and streams. Nothing is stored: each request has the whole
conversation."""

from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from agentsgym.generation.serving import wire
from agentsgym.generation.serving.wire import Body, CallBody, Called, JsonObject, Reply, Texts
from agentsgym.types import Message


class _Message(Body):
    type: Literal["message"]
    role: Literal["system", "developer", "user", "assistant"]
    content: Texts


class _Call(Called):
    type: Literal["function_call"]


class _Output(Body):
    type: Literal["function_call_output"]
    call_id: str
    output: Texts


def _item(item: Any) -> Any:
    return {"type": "message", **item} if isinstance(item, dict) and "role" in item else item


def _items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


_Item = Annotated[_Message | _Call | _Output, Field(discriminator="type"), BeforeValidator(_item)]


class ResponsesBody(CallBody):
    """The body of a request to /v1/responses."""

    input: Annotated[list[_Item], Field(min_length=1), BeforeValidator(_items)]
    instructions: str | None = None

    def conversation(self) -> list[Message]:
        """The messages; calls belong to the answer before them."""
        messages = [wire.text_message("system", [self.instructions])] if self.instructions else []
        for item in self.input:
            if isinstance(item, _Output):
                messages.append(wire.tool_message(item.call_id, item.output))
            elif isinstance(item, _Call):
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append(wire.assistant_message([]))
                messages[-1].setdefault("tool_calls", []).append(item.tool_call())
            elif item.role == "assistant":
                messages.append(wire.assistant_message(item.content))
            else:
                messages.append(wire.text_message(item.role, item.content))
        return messages

    def answer(self, reply: Reply) -> JsonObject:
        """The body of the answer."""
        cut = reply.answer.ending == "length"
        read, written = reply.tokens
        return {
            "id": f"resp_{reply.id}",
            "object": "response",
            "created_at": reply.created,
            "status": _status(reply),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": reply.model,
            "output": _output(reply),
            "parallel_tool_calls": True,
            "tool_choice": self.tool_choice or "auto",
            "tools": [{**tool.model_dump(), "type": "function"} for tool in self.tools],
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read + written,
            },
        }

    def events(self, reply: Reply) -> Iterator[bytes]:
        """The answer as a stream of events."""
        numbers = count()

        def numbered(kind: str, **data: Any) -> bytes:
            kind = f"response.{kind}"
            return wire.event({"type": kind, "sequence_number": next(numbers), **data}, kind)

        whole = self.answer(reply)
        begun: JsonObject = {**whole, "status": "in_progress", "incomplete_details": None}
        begun |= {"output": [], "usage": None}
        yield numbered("created", response=begun)
        yield numbered("in_progress", response=begun)
        for index, item in enumerate(whole["output"]):
            for kind, data in _item_events(item):
                yield numbered(kind, output_index=index, **data)
        yield numbered(whole["status"], response=whole)


def _status(reply: Reply) -> str:
    return "incomplete" if reply.answer.ending == "length" else "completed"


def _output(reply: Reply) -> list[JsonObject]:
    status = _status(reply)
    calls: list[JsonObject] = [
        {
            "type": "function_call",
            "id": f"fc_{reply.id}_{index}",
            "status": status,
            "call_id": id,
            "name": name,
            "arguments": wire.to_json(arguments),
        }
        for index, (id, name, arguments) in enumerate(reply.calls)
    ]
    if calls and not reply.text:
        return calls
    part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    head = {"type": "message", "id": f"msg_{reply.id}", "status": status}
    return [{**head, "role": "assistant", "content": [part]}, *calls]


def _item_events(item: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    is_call = item["type"] == "function_call"
    empty: JsonObject = {"arguments": ""} if is_call else {"content": []}
    yield "output_item.added", {"item": {**item, "status": "in_progress", **empty}}
    yield from _call_events(item) if is_call else _text_events(item)
    yield "output_item.done", {"item": item}


def _text_events(item: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    (part,) = item["content"]
    place = {"item_id": item["id"], "content_index": 0}
    yield "content_part.added", {**place, "part": {**part, "text": ""}}
    yield "output_text.delta", {**place, "delta": part["text"], "logprobs": []}
    yield "output_text.done", {**place, "text": part["text"], "logprobs": []}
    yield "content_part.done", {**place, "part": part}


def _call_events(item: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    place = {"item_id": item["id"]}
    yield "function_call_arguments.delta", {**place, "delta": item["arguments"]}
    whole = {"name": item["name"], "arguments": item["arguments"]}
    yield "function_call_arguments.done", {**place, **whole}
