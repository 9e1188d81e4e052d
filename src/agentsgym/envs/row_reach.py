"""Servers, and the keys sent to them, in an `env_config`: the program's own are trusted, those in
dataset rows are not, or a row of a stranger could let this process contact any address.

A row may only repeat what this program has given to an environment itself, all of it together: the
rows of an environment's own dataset do.
"""

from collections.abc import Mapping
from typing import Any

from agentsgym.envs.config import Key
from agentsgym.types.errors import ConfigError

_GIVEN: set[tuple[tuple[str, str], ...]] = set()


def remember_reach(keys: Mapping[str, Key], config: Mapping[str, Any]) -> None:
    """Trust the servers of this configuration from now on."""
    reach = reach_of(keys, config)
    if reach:
        _GIVEN.add(_plain(reach))


def check_reach(env_name: str, keys: Mapping[str, Key], config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a row's configuration names a server that this program did not give to
    an environment, or another key for it."""
    reach = reach_of(keys, config)
    if reach and _plain(reach) not in _GIVEN:
        named = ", ".join(f"env_config[{name!r}]" for name in reach)
        raise ConfigError(
            f"{env_name}: {named}: a row cannot make this program contact a server; if you trust "
            "it, make the environment yourself and pass it with envs=[env]"
        )


def reach_of(keys: Mapping[str, Key], config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration that names servers and their keys."""
    named = {name: config.get(name) for name, key in keys.items() if key.reaches}
    return {name: value for name, value in named.items() if value is not None}


def _plain(reach: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(reach[name])) for name in sorted(reach))
