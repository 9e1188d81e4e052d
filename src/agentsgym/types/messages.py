"""Messages of a conversation, and the calls of tools in them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict


class ToolFunction(TypedDict):
    """What a tool call calls: `arguments` by name, as JSON values."""

    name: str
    arguments: dict[str, Any]


class ToolCall(TypedDict):
    """One call of a tool in an answer, in the form that chat templates read."""

    type: Literal["function"]
    id: str
    function: ToolFunction


def tool_call(call: int | str, name: str, arguments: dict[str, Any]) -> ToolCall:
    """The call with this id, or of this number; of a number an id is made that all templates
    take."""
    call_id = f"call{call:05d}" if isinstance(call, int) else call
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}


ToolSchema = Mapping[str, Any]
"""A tool as OpenAI and chat templates describe it: `{"type": "function", "function": {"name": …,
"description": …, "parameters": JSON schema}}`."""


@dataclass(frozen=True, slots=True, eq=False)
class Message(Mapping[str, Any]):
    """One turn of a conversation; `role` is system, user, assistant or tool.

    An answer of the role assistant may have `tool_calls`; a message of the role tool, the result of
    one, has its id (`tool_call_id`) and the tool's `name`. A message reads as the mapping that chat
    templates and OpenAI's API take, without the keys that it does not have; `to_dict` makes one.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    @classmethod
    def of(cls, message: "Message | Mapping[str, Any]") -> Self:
        """The message that a mapping is. Raises ValueError if it has no role or content, or what no
        message has."""
        if isinstance(message, cls):
            return message
        known = cls.__match_args__
        if not {"role", "content"} <= message.keys() <= {*known}:
            raise ValueError(f"a message has the keys {', '.join(known)}, got {sorted(message)}")
        return cls(**{**message, "tool_calls": tuple(message.get("tool_calls") or ())})

    def __getitem__(self, key: str) -> Any:
        return self._own()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own())

    def __len__(self) -> int:
        return len(self._own())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Message):
            return all(getattr(self, key) == getattr(other, key) for key in self.__match_args__)
        return isinstance(other, Mapping) and self._own() == other

    def _own(self) -> dict[str, Any]:
        own: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            own["tool_calls"] = list(self.tool_calls)
        if self.tool_call_id is not None:
            own["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            own["name"] = self.name
        return own

    def to_dict(self) -> dict[str, Any]:
        """The message as a dict of its own, which can be changed."""
        return deepcopy(self._own()) if self.tool_calls else self._own()


def count_calls(messages: Sequence[Message]) -> int:
    """How many calls of tools a conversation has."""
    return sum(len(message.tool_calls) for message in messages)


def spoken(message: Message) -> str:
    """A message's text, and each of its tool calls as a line of JSON."""
    if not message.tool_calls:
        return message.content
    calls = [json.dumps(call["function"], ensure_ascii=False) for call in message.tool_calls]
    return "\n".join([message.content, *calls] if message.content else calls)


def as_text(messages: Sequence[Message]) -> str:
    """Messages for the eyes of a reader: the text of a single one, else each with its role."""
    if len(messages) == 1 and messages[0].role in ("user", "tool"):
        return messages[0].content
    return "\n\n".join(f"[{message.role}] {spoken(message)}" for message in messages)
