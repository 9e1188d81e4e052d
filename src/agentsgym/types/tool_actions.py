"""An action with calls of tools as one text: what `_step_episode` gets in an environment with
tools, and what a step stores.

The text is JSON, `{"content": str, "tool_calls": [{"name": str, "arguments": {…}}]}`. Of sampled
ids it is always made here, from what the chat template's own parser read; so a model that writes
such a text as ordinary words only says them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from agentsgym.types.messages import Message, ToolCall, ToolFunction, ToolSchema

_KEYS = {"content", "tool_calls"}
_ACT, _ACTION = "act", "action"
ACT: ToolSchema = {
    "type": "function",
    "function": {
        "name": _ACT,
        "description": "Take your next action, one at a time, and read what it does.",
        "parameters": {
            "type": "object",
            "properties": {
                _ACTION: {
                    "type": "string",
                    "description": "The action, in the words that you are asked for.",
                }
            },
            "required": [_ACTION],
        },
    },
}
"""The tool of an environment that is played with `action_form="tool"`."""
NO_ACT = "Nothing was done. Answer with exactly one call of the tool act, with your action."
"""The answer to anything but one call of `ACT`."""


@dataclass(frozen=True, slots=True)
class ToolAction:
    """What an agent says in one action, and the `calls` that it makes. `unread` counts calls that
    it began and that could not be read."""

    content: str = ""
    calls: tuple[ToolFunction, ...] = ()
    unread: int = 0

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The action that a text says; a text of another form is content without calls."""
        try:
            return cls._of_json(json.loads(text)) if text.startswith("{") else cls(text)
        except (ValueError, RecursionError):
            return cls(text)

    @classmethod
    def _of_json(cls, said: Any) -> Self:
        if not isinstance(said, dict) or not _KEYS <= said.keys() <= {*_KEYS, "unread"}:
            raise ValueError("it has other keys")
        content, calls, unread = said["content"], said["tool_calls"], said.get("unread", 0)
        if not (isinstance(content, str) and isinstance(calls, list) and type(unread) is int):
            raise ValueError("it has other values")
        return cls(content, tuple(map(_function, calls)), max(0, unread))

    @classmethod
    def of_message(cls, message: Message, attempted: int | None = None) -> Self:
        """The action that an answer of the role assistant is; `attempted` calls were begun in it
        (None: those that it has)."""
        calls = tuple(call["function"] for call in message.tool_calls)
        unread = 0 if attempted is None else max(0, attempted - len(calls))
        return cls(message.content, calls, unread)

    @property
    def text(self) -> str:
        """The action as one text."""
        said: dict[str, Any] = {"content": self.content, "tool_calls": list(self.calls)}
        if self.unread:
            said["unread"] = self.unread
        return json.dumps(said, ensure_ascii=False)

    @property
    def attempted(self) -> int:
        """The number of calls that were begun."""
        return len(self.calls) + self.unread

    def message(self, first: int = 0) -> Message:
        """The action as an answer of the role assistant; the ids of its calls count from `first`,
        in the form that every template takes."""
        calls: tuple[ToolCall, ...] = tuple(
            {"type": "function", "id": f"call{number:05d}", "function": function}
            for number, function in enumerate(self.calls, first)
        )
        return Message("assistant", self.content, calls)

    @property
    def act(self) -> str | None:
        """The plain action, if this is exactly one call of `ACT`."""
        if self.unread or len(self.calls) != 1 or self.calls[0]["name"] != _ACT:
            return None
        arguments = self.calls[0]["arguments"]
        action = arguments.get(_ACTION)
        return action if isinstance(action, str) and len(arguments) == 1 else None

    def metrics(self, executed: int | None = None) -> dict[str, float]:
        """The numbers of calls that were begun, read, answered with a result, and with an error;
        without the last two where a program runs them (None)."""
        counts = {"attempted": self.attempted, "parsed": len(self.calls)}
        if executed is not None:
            counts |= {"executed": executed, "failed": len(self.calls) - executed}
        return {f"tool_calls/{name}": float(count) for name, count in counts.items()}


def together(*actions: ToolAction) -> ToolAction:
    """One action with the calls of all, and what the first one says."""
    calls = tuple(call for action in actions for call in action.calls)
    return ToolAction(actions[0].content, calls)


def calling(name: str, /, **arguments: Any) -> ToolAction:
    """The action that calls one tool; its `text` is what a scripted agent or a teacher says."""
    return ToolAction("", ({"name": name, "arguments": arguments},))


def acting(action: str) -> ToolAction:
    """A plain action as a call of `ACT`."""
    return calling(_ACT, **{_ACTION: action})


def results(action: ToolAction, texts: Sequence[str]) -> list[Message]:
    """The messages of the role tool that answer an action's calls, in their order."""
    return [
        Message(role="tool", content=text, name=call["name"])
        for call, text in zip(action.calls, texts, strict=True)
    ]


def checked_calls(calls: Any) -> list[ToolCall]:
    """The tool calls of a message of others. Raises ValueError if they are something else."""
    if not isinstance(calls, list):
        raise ValueError("calls are a list")
    return [_tool_call(call) for call in calls]


def _tool_call(call: Any) -> ToolCall:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        raise ValueError("a call has an id and a function")
    return {"type": "function", "id": call["id"], "function": _function(call.get("function"))}


def _function(call: Any) -> ToolFunction:
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        raise ValueError("a call has a name and arguments")
    if not isinstance(call["name"], str) or not isinstance(call["arguments"], dict):
        raise ValueError("a call has a name and arguments")
    return {"name": call["name"], "arguments": call["arguments"]}
