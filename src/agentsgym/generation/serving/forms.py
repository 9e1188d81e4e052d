"""The forms of an answer that calls demand, from where each API has them."""

import json
from collections.abc import Sequence
from typing import Any

from agentsgym.generation.serving.calls import CallRefused
from agentsgym.types.requests import Form

_PLACES = ("response_format", "text.format", "output_config.format", "output_format")


def demanded_call(tools: Sequence[str], choice: Any) -> Form | None:
    """The call that a `tool_choice` demands of these tools."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if not tools or kind not in ("required", "any", "function", "tool"):
        return None
    inner = choice.get("function", choice) if isinstance(choice, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if name is not None and name not in tools:
        why = f"tool_choice names {str(name)[:100]!r}, which is none of the tools"
        raise CallRefused(why, param="tool_choice")
    return "call", name or ""


def demanded_format(body: Any) -> Form | None:
    """The format that a body demands: a JSON schema where the APIs have it or, as in vLLM, a
    regular expression. Raises CallRefused."""
    regex = _inner(body.structured_outputs, "regex")
    if isinstance(regex, str):
        return "regex", regex
    for place in _PLACES:
        key, _, inner = place.partition(".")
        wanted = getattr(body, key)
        wanted = _inner(wanted, inner) if inner else wanted
        if wanted and wanted != {"type": "text"}:
            return "json", json.dumps(_schema(place, wanted))
    return None


def _inner(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _schema(place: str, wanted: Any) -> Any:
    """The JSON schema of a format."""
    kind = _inner(wanted, "type")
    if kind == "json_object":
        return {"type": "object"}
    schema = _inner(wanted.get("json_schema", wanted), "schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        why = f"{place} must be text, json_object, or json_schema with a schema that is an object"
        raise CallRefused(why, param=place)
    return schema
