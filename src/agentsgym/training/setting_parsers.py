"""Converts values from command lines, YAML and TRL's users to the types of the settings."""

import json
from collections.abc import Mapping
from typing import Any

from agentsgym.envs.settings import problem_of_resources

GENERATION_KEYS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_new_tokens": "max_action_tokens",
    "max_tokens": "max_action_tokens",
    "stop_strings": "stop_strings",
    "stop": "stop_strings",
}
"""Keys of `generation_kwargs`, named as in transformers and vLLM, and our settings for them."""

ACTION_TOKENS = 64
"""Default token cap of an action."""

_WORDS = {"true": True, "false": False}


def texts(name: str, value: Any) -> list[str]:
    """A list of texts. A text becomes a list, None an empty list; others raise ValueError."""
    if isinstance(value, str):
        value = [value]
    values = [] if value is None else value
    if not isinstance(values, list | tuple) or not all(v and isinstance(v, str) for v in values):
        raise ValueError(f"{name} must be a list of texts that are not empty, got {value!r}")
    return list(values)


def mapping(name: str, value: Any) -> dict[str, Any]:
    """A mapping, given directly or as JSON; None is an empty one. Raises ValueError for others."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"{name} must be a mapping or JSON of one, got {value!r}") from None
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping, got {value!r}")
    return dict(value or {})


def resources(name: str, value: Any) -> dict[str, Any]:
    """Names of resources and their amounts, read like `mapping`."""
    found = mapping(name, value)
    problem = problem_of_resources(found)
    if problem is not None:
        raise ValueError(f"{name} {problem}")
    return found


def trust(value: Any) -> bool | list[str]:
    """`trust`: true, false or module names; on a command line all of them are texts."""
    if value is None or isinstance(value, bool):
        return bool(value)
    names = texts("trust", value)
    return _WORDS.get(names[0].lower(), names) if len(names) == 1 else names


def sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings for `generation_kwargs`. Raises ValueError for a key without a setting."""
    settings: dict[str, Any] = {}
    for key, value in options.items():
        if key not in GENERATION_KEYS:
            allowed = ", ".join(GENERATION_KEYS)
            raise ValueError(f"generation_kwargs has no {key!r} here; it has {allowed}")
        name = GENERATION_KEYS[key]
        value = texts(f"generation_kwargs[{key!r}]", value) if name == "stop_strings" else value
        if settings.setdefault(name, value) != value:
            raise ValueError(f"generation_kwargs gives {name} twice: {settings[name]}, {value}")
    return settings


def limits(settings: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Token cap and stop strings of an action according to the settings of a run's file."""
    options = sampling(mapping("generation_kwargs", settings.get("generation_kwargs")))
    caps = [settings.get("max_action_tokens"), settings.get("max_completion_length")]
    caps += [options.get("max_action_tokens"), ACTION_TOKENS]
    stops = texts("stop_strings", settings.get("stop_strings"))
    return next(cap for cap in caps if cap is not None), stops or options.get("stop_strings", [])


def lists(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run's file, with a single text converted to a list where a list is needed."""
    readers = {"stop_strings": texts, "engine_urls": texts}
    found = dict(settings)
    found |= {name: read(name, found[name]) for name, read in readers.items() if name in found}
    if found.get("trust") is not None:
        found["trust"] = trust(found["trust"])
    return found
