"""Calls of tools: as a text agent says them, as messages have them, and the tool `act`.

A text agent says a call as one line of JSON, `{"name": str, "arguments": {…}}`, after its other
words, and a step's text shows it so. Of sampled ids it is never read: there the chat template's own
parser says what a call is, so a model that writes such a line as ordinary words only says it.
"""

import json
from typing import Any

from agentsgym.types.answers import Answer
from agentsgym.types.messages import Message, ToolCall, ToolFunction, ToolSchema, tool_call

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


def calling(name: str, /, **arguments: Any) -> str:
    """What a scripted agent or a teacher says to call a tool; several calls are several lines."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def said(text: str, first: int = 0) -> Message:
    """A text agent's words as an answer: the lines at their end that are calls call tools. The ids
    of the calls count from `first`."""
    lines, calls = text.split("\n"), list[ToolFunction]()
    while lines and (call := _called(lines[-1])) is not None:
        calls.insert(0, call)
        del lines[-1]
    numbered = (tool_call(number, **call) for number, call in enumerate(calls, first))
    return Message("assistant", "\n".join(lines), tuple(numbered))


def _called(line: str) -> ToolFunction | None:
    try:
        return _function(json.loads(line)) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None


def acting(action: str, number: int = 0) -> Message:
    """A plain action as the call of `ACT` with this number."""
    return Message("assistant", "", (tool_call(number, _ACT, {_ACTION: action}),))


def plain_act(answer: Answer) -> str | None:
    """The plain action, if the answer is exactly one call of `ACT`."""
    if answer.attempted != 1 or answer.unread or answer.calls[0]["name"] != _ACT:
        return None
    arguments = answer.calls[0]["arguments"]
    action = arguments.get(_ACTION)
    return action if isinstance(action, str) and len(arguments) == 1 else None


def checked_calls(calls: Any) -> tuple[ToolCall, ...]:
    """The tool calls of a message of others. Raises ValueError if they are something else."""
    if not isinstance(calls, list):
        raise ValueError("calls are a list")
    return tuple(map(_checked, calls))


def _checked(call: Any) -> ToolCall:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        raise ValueError("a call has an id and a function")
    return tool_call(call["id"], **_function(call.get("function")))


def _function(call: Any) -> ToolFunction:
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        raise ValueError("a call has a name and arguments")
    if not isinstance(call["name"], str) or not isinstance(call["arguments"], dict):
        raise ValueError("a call has a name and arguments")
    return {"name": call["name"], "arguments": call["arguments"]}
