"""The error for settings and names that are not allowed, and what somebody may have meant."""

import difflib
from collections.abc import Collection

from agentsgym.types.text import visible

_MOST_LISTED = 40


class ConfigError(ValueError):
    """A key or value of a configuration that is not allowed; the message names both."""

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(message))


def unknown_key(key: str, allowed: Collection[str], prefix: str = "") -> str:
    """The sentence about an unknown key, with the most similar allowed ones."""
    return f"unknown key {prefix + key!r}; {did_you_mean(key, allowed, prefix)}"


def did_you_mean(name: str, allowed: Collection[str], prefix: str = "") -> str:
    """What somebody who wrote `name` may have meant, or, if there are few, what is allowed."""
    by_key = {other.casefold(): other for other in allowed}
    keys = difflib.get_close_matches(name.casefold(), by_key, n=3, cutoff=0.6)
    near = [by_key[key] for key in keys]
    if near:
        return f"did you mean {' or '.join(repr(prefix + other) for other in near)}?"
    if len(allowed) > _MOST_LISTED:
        return f"none of the {len(allowed)} names allowed here is similar"
    return f"allowed are {', '.join(prefix + other for other in sorted(allowed))}"
