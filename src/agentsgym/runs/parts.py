"""Parts of a run that a run may do without: no other file imports them."""

from importlib import import_module
from typing import Any

from agentsgym.types.names import ConfigError

PARTS = (
    "warm_start",
    "estimate",
    "dry_run",
    "curve",
)
"""Each is a file of this package."""


def part(name: str) -> Any:
    """The module of a part, imported now. Raises ConfigError for one that is not here."""
    if name not in PARTS:
        raise ConfigError(f"this copy of agentsgym has no {name}; it has {', '.join(PARTS)}")
    return import_module(f"agentsgym.runs.{name}")
