"""What the `env_config` of a dataset row may say. A row is data, so it can't make this process read
arbitrary files, contact a server, hang, or fill the memory.

A row may name files in agentsgym's cache and under `ALFWORLD_DATA`, and repeat the paths and
servers that this program itself gave to an environment, as the rows of that environment's own
dataset do. Environments that the program makes itself have no such limits.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentsgym.envs.cache_folder import cache_folder
from agentsgym.envs.config import Key
from agentsgym.types.errors import ConfigError
from agentsgym.types.trust import checked_path, real_path

MOST_ACTIONS = 100_000
"""Limit for one trial: steps of an episode times episodes."""
MOST: Mapping[str, float] = {
    "workers": 256,
    "worker_timeout": 3600,
    "grader_timeout": 600,
    "reflection_tokens": 100_000,
    "rooms": 30,
    "objects": 100,
    "quest_length": 30,
    "ingredients": 20,
    "level": 300,
}
_OWN: set[Path | tuple[tuple[str, str], ...]] = set()
_HAND_OVER = "; if this is intended, pass the environment object with envs=[env]"


def remember_own(keys: Mapping[str, Key], config: Mapping[str, Any]) -> None:
    """Let rows repeat the paths and servers of this configuration from now on."""
    _OWN.update(map(real_path, paths_of(keys, config).values()))
    _OWN.add(_plain(servers_of(keys, config)))


def check_row_config(env_name: str, keys: Mapping[str, Key], config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a row's configuration names a file or a server that it may not."""
    own = [path for path in _OWN if isinstance(path, Path)]
    for name, path in paths_of(keys, config).items():
        try:
            checked_path(path, [*task_directories(), *own])
        except (ValueError, RuntimeError, OSError) as error:
            raise ConfigError(f"{env_name}: env_config[{name!r}]: {error}") from None
    servers = servers_of(keys, config)
    if servers and _plain(servers) not in _OWN:
        named = ", ".join(f"env_config[{name!r}]" for name in servers)
        raise ConfigError(
            f"{env_name}: {named}: a row cannot make this program contact a server{_HAND_OVER}"
        )


def check_limits(env_name: str, config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a row's complete configuration exceeds a limit."""
    for name, most in MOST.items():
        value = config.get(name)
        if isinstance(value, int | float) and value > most:
            raise ConfigError(
                f"{env_name}: env_config[{name!r}] of a row must be at most {most}, got {value}"
                f"{_HAND_OVER}"
            )
    actions = config["max_steps_per_episode"] * config["episodes_per_trial"]
    if actions > MOST_ACTIONS:
        raise ConfigError(
            f"{env_name}: a row may request at most {MOST_ACTIONS} actions in a trial, got "
            f"{actions}{_HAND_OVER}"
        )


def task_directories(*, trusted: bool = False) -> list[Path]:
    """Directories in which the tasks of any environment may name files: all, if the caller trusts
    the tasks."""
    official = os.environ.get("ALFWORLD_DATA")
    shared = [str(cache_folder("")), *([official] if official else [])]
    return [Path(Path.cwd().anchor)] if trusted else [real_path(path) for path in shared]


def paths_of(keys: Mapping[str, Key], config: Mapping[str, Any]) -> dict[str, str]:
    """The files and folders that a configuration names, by their keys."""
    named = {name: config.get(name) for name, key in keys.items() if key.is_path}
    return {name: value for name, value in named.items() if isinstance(value, str)}


def servers_of(keys: Mapping[str, Key], config: Mapping[str, Any]) -> dict[str, Any]:
    """The servers that a configuration names, and what is sent to them as a key."""
    named = {name: config.get(name) for name, key in keys.items() if key.reaches}
    return {name: value for name, value in named.items() if value is not None}


def _plain(servers: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(servers[name])) for name in sorted(servers))
