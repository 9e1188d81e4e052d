"""OpenAI's Responses: bodies, answers and streams. Nothing is stored: each request has the whole
conversation."""

from collections.abc import Iterator
from dataclasses import replace
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
    include: list[str] = Field([])

    def wants_logprobs(self) -> bool:
        """Whether they are to be included."""
        return "message.output_text.logprobs" in self.include

    def conversation(self) -> list[Message]:
        """The messages; calls belong to the answer before them."""
        messages = [wire.text_message("system", [self.instructions])] if self.instructions else []
        for item in self.input:
            if isinstance(item, _Output):
                messages.append(wire.tool_message(item.call_id, item.output))
            elif isinstance(item, _Call):
                if not messages or messages[-1].role != "assistant":
                    messages.append(wire.assistant_message([]))
                calls = (*messages[-1].tool_calls, item.tool_call())
                messages[-1] = replace(messages[-1], tool_calls=calls)
            elif item.role == "assistant":
                messages.append(wire.assistant_message(item.content))
            else:
                messages.append(wire.text_message(item.role, item.content))
        return messages

    def answer(self, reply: Reply) -> JsonObject:
        """The body of the answer."""
        cut = reply.ending == "length"
        read, written = reply.tokens
        return {
            "id": f"resp_{reply.id}",
            "object": "response",
            "created_at": reply.created,
            "status": _status(reply),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": reply.model,
            "output": self._output(reply),
            "parallel_tool_calls": True,
            "tool_choice": self.tool_choice or "auto",
            "tools": [
                {**tool.model_dump(exclude={"namespace"}), "type": "function"}
                for tool in self.tools
            ],
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
        whole = self.answer(reply)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        begun["incomplete_details"] = None
        events: list[tuple[str, JsonObject]] = [
            ("created", {"response": begun}),
            ("in_progress", {"response": begun}),
        ]
        for index, item in enumerate(whole["output"]):
            events += _item_events(index, item)
        events.append((whole["status"], {"response": whole}))
        for number, (name, data) in enumerate(events):
            kind = f"response.{name}"
            yield wire.event({"type": kind, "sequence_number": number, **data}, kind)

    def _output(self, reply: Reply) -> list[JsonObject]:
        status = _status(reply)
        spaces = {tool.name: tool.namespace for tool in self.tools if tool.namespace}
        calls: list[JsonObject] = [
            {
                "type": "function_call",
                "id": f"fc_{reply.id}_{index}",
                "status": status,
                "call_id": id,
                "name": name,
                "arguments": wire.to_json(arguments),
                **({"namespace": spaces[name]} if name in spaces else {}),
            }
            for index, (id, name, arguments) in enumerate(reply.calls)
        ]
        if calls and not (reply.text or reply.logprobs):
            return calls
        part: JsonObject = {"type": "output_text", "text": reply.text, "annotations": []}
        part["logprobs"] = reply.logprobs
        head = {"type": "message", "id": f"msg_{reply.id}", "status": status}
        return [{**head, "role": "assistant", "content": [part]}, *calls]


def _status(reply: Reply) -> str:
    return "incomplete" if reply.ending == "length" else "completed"


def _item_events(index: int, item: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The kinds and data of the events of an item."""
    empty: JsonObject = {"content": []} if item["type"] == "message" else {"arguments": ""}
    begun = {**item, **empty, "status": "in_progress"}
    where = {"item_id": item["id"], "output_index": index}
    yield "output_item.added", {"output_index": index, "item": begun}
    if item["type"] == "message":
        (part,) = item["content"]
        where["content_index"] = 0
        shown = {"logprobs": part["logprobs"]}
        yield "content_part.added", {**where, "part": {**part, "text": "", "logprobs": []}}
        yield "output_text.delta", {**where, "delta": part["text"], **shown}
        yield "output_text.done", {**where, "text": part["text"], **shown}
        yield "content_part.done", {**where, "part": part}
    else:
        written = {"name": item["name"], "arguments": item["arguments"]}
        yield "function_call_arguments.delta", {**where, "delta": item["arguments"]}
        yield "function_call_arguments.done", {**where, **written}
    yield "output_item.done", {"output_index": index, "item": item}
