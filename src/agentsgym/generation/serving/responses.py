"""OpenAI's Responses: bodies and answers, without streams. Nothing is stored: each request has the
whole conversation."""

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
    stream: Literal[False] = False

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
