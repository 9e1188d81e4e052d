"""What formats of tool calls share: a format's record, and the readers of JSON."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.types import ToolCall, ToolSchema
from agentsgym.types.messages import tool_call

Read = list[ToolCall | None]
"""The calls of a body, with the ids that the agent sampled, "" without one; None for a call that
cannot be read."""


class ArgumentTypes:
    """The JSON types of the arguments of `tools`, for formats that write texts without quotes."""

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self._types: dict[tuple[str, str], set[str]] = {}
        for tool in tools:
            function = _mapping(tool.get("function", tool))
            properties = _mapping(_mapping(function.get("parameters")).get("properties"))
            for key, schema in properties.items():
                self._types[str(function.get("name")), key] = set(_types_in(schema))

    def value(self, tool: str, key: str, text: str) -> Any:
        """The value that `text` writes: the text, unless the argument may be of another type and
        the text is of it."""
        types = self._types.get((tool, key), set())
        if types <= {"string"}:
            return text
        python = {"True": True, "False": False, "None": None}
        try:
            value = python[text] if text in python else json_value(text)
        except ValueError:
            return text
        return value if "string" not in types or isinstance(value, dict | list | None) else text


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _types_in(schema: Any) -> Iterator[str]:
    """The types that a JSON schema allows at its top."""
    named = _mapping(schema).get("type")
    yield from filter(None, named if isinstance(named, list) else [named])
    for union in ("anyOf", "oneOf"):
        choices = _mapping(schema).get(union)
        for choice in choices if isinstance(choices, list) else ():
            yield from _types_in(choice)


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A format of calls, and the `families` of models that use it.

    A call, or several, stands between `opener` and `closer`; without a closer, it ends at the next
    opener or at the end. `read` takes what stands there, and raises ValueError. `inner` are tokens
    that structure it. With `in_messages` a call is a message of its own, whose header has the
    opener; with `whole`, a pattern of what the template writes, a call is the whole answer.
    """

    families: str
    opener: str
    closer: str
    read: Callable[[str, ArgumentTypes], Read]
    inner: tuple[str, ...] = ()
    in_messages: bool = False
    whole: str = ""

    def wrote(self, text: str) -> bool:
        """Whether a template wrote this call of the tool `LOOK_UP` in the format."""
        return bool(re.match(self.whole, text)) if self.whole else self.opener in text


# -- JSON ------------------------------------------------------------------------------------------


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    # 1e999 is JSON, and no client could be sent the infinity that it becomes.
    return float(number) if math.isfinite(float(number)) else _refuse(number[:40])


DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def json_value(text: str) -> Any:
    """The value of a JSON text. Raises ValueError."""
    values = json_values(text)
    if len(values) != 1:
        raise ValueError("not one JSON value")
    return values[0]


def json_values(text: str) -> list[Any]:
    """The values of JSON texts that stand one after another, perhaps with semicolons between."""
    values = []
    text = text.strip()
    while text:
        value, end = DECODER.raw_decode(text)
        values.append(value)
        text = text[end:].lstrip().removeprefix(";").lstrip()
    return values


_DEEPEST = 100
"""Levels of arguments: what reads bodies refuses twice as many."""


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0


def call_of(value: Any) -> ToolCall | None:
    """The call that a JSON value describes."""
    if not isinstance(value, Mapping):
        return None
    name, arguments = value.get("name"), value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    if _depth(arguments) > _DEEPEST:
        return None
    call_id = value.get("id")
    return tool_call(call_id if isinstance(call_id, str) else "", name, arguments)


def json_calls(body: str, types: ArgumentTypes) -> Read:
    """`{"name": …, "arguments": {…}}`, several of these, or a list of them."""
    values = json_values(body)
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    return [call_of(value) for value in values] or [None]


def named_call(body: str, types: ArgumentTypes) -> Read:
    """A name and a JSON object, with what Mistral and DeepSeek write around the name."""
    if body.lstrip().startswith("["):
        return json_calls(body, types)
    head, brace, rest = body.partition("{")
    parts = re.split(r"<｜tool▁sep｜>|\[ARGS\]", head.partition("```")[0])
    named = [part.strip() for part in parts if part.strip()] or [""]
    name, _, call_id = named[-1].partition("[CALL_ID]")
    arguments = json_value((brace + rest).strip().removesuffix("```"))
    return [call_of({"name": name, "arguments": arguments, "id": call_id})]
