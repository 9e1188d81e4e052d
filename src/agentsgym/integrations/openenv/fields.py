"""Which field of a server's actions the agent fills, and which one of its observations it reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentsgym.types.text import short_repr

_NOT_TEXT = frozenset({"done", "reward", "metadata"})


class NoField(ValueError):
    """A server's schema does not say which field is meant; the message names the setting."""


class NotJson(ValueError):
    """An action is not the JSON that the server's field needs; the message is for the agent."""


@dataclass(frozen=True, slots=True)
class Fields:
    """How actions are sent and observations are read.

    The agent's text becomes the field `action` of the server's action, as text if `action_is_text`
    and read as JSON otherwise; with `action` None it is the whole action, as a JSON object.
    `observation` is the field with the text for the agent.
    """

    action: str | None
    action_is_text: bool
    observation: str

    def payload(self, text: str) -> dict[str, Any]:
        """The action as the server takes it. Raises NotJson."""
        if self.action is None:
            fields = _parsed(text)
            if not isinstance(fields, dict):
                raise NotJson("An action is a JSON object here.")
            return fields
        return {self.action: text if self.action_is_text else _parsed(text)}

    def text(self, observation: Mapping[str, Any]) -> str:
        """What the agent reads; JSON if the field holds no text."""
        value = observation.get(self.observation, "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def fields_of(
    schema: Any, action: str | None, observation: str | None, *, action_json: bool
) -> Fields:
    """The fields of a server's `/schema`, or the given ones. Raises NoField."""
    actions, required = _properties(schema, "action")
    chosen = None if action_json else action or _action(actions, required)
    kind = actions.get(chosen, {}).get("type", "string") if chosen else None
    return Fields(chosen, kind == "string", observation or _observation(schema))


def _action(properties: Mapping[str, Any], required: list[str]) -> str:
    """The one field that must be there, or the only one."""
    for names in (required, list(properties)):
        choices = [name for name in names if name not in _NOT_TEXT]
        if len(choices) == 1:
            return choices[0]
    raise NoField(
        f"its actions have the fields {short_repr(sorted(properties))}: set "
        "env_config.action_field to the one that the agent fills, or env_config.action_json if it "
        "says all of them"
    )


def _observation(schema: Any) -> str:
    """The only field that is text."""
    properties, _ = _properties(schema, "observation")
    texts = [
        name
        for name, field in properties.items()
        if name not in _NOT_TEXT and isinstance(field, Mapping) and field.get("type") == "string"
    ]
    if len(texts) == 1:
        return texts[0]
    raise NoField(
        f"its observations have the fields {short_repr(sorted(properties))}: set "
        "env_config.observation_field to the one that the agent reads"
    )


def _properties(schema: Any, part: str) -> tuple[Mapping[str, Any], list[str]]:
    entry = schema.get(part) if isinstance(schema, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(entry.get("properties", {}), Mapping):
        raise NoField(f"its /schema does not describe its {part}s")
    required = entry.get("required", [])
    return entry.get("properties", {}), required if isinstance(required, list) else []


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NotJson("The action must be JSON here.") from None
