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
from agentsgym.envs.settings import PATH, SERVER, EnvSettings, marked
from agentsgym.types.errors import ConfigError
from agentsgym.types.trust import checked_path, real_path

MOST_ACTIONS = 100_000
"""Limit for one trial: steps of an episode times episodes."""
_OWN: set[Path | tuple[tuple[str, str], ...]] = set()
_HAND_OVER = "; if this is intended, pass the environment object with envs=[env]"


def remember_own(kind: type[EnvSettings], config: Mapping[str, Any]) -> None:
    """Let rows repeat the paths and servers of this configuration from now on."""
    _OWN.update(map(real_path, paths_of(kind, config).values()))
    _OWN.add(_plain(servers_of(kind, config)))


def check_row_config(env_name: str, kind: type[EnvSettings], config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a row's configuration names a file or a server that it may not."""
    own = [path for path in _OWN if isinstance(path, Path)]
    for name, path in paths_of(kind, config).items():
        try:
            checked_path(path, [*task_directories(), *own])
        except (ValueError, RuntimeError, OSError) as error:
            raise ConfigError(f"{env_name}: env_config.{name}: {error}") from None
    servers = servers_of(kind, config)
    if servers and _plain(servers) not in _OWN:
        named = ", ".join(f"env_config.{name}" for name in servers)
        raise ConfigError(
            f"{env_name}: {named}: a row cannot make this program contact a server{_HAND_OVER}"
        )


def check_limits(env_name: str, config: EnvSettings) -> None:
    """Raise ConfigError if a row's complete configuration exceeds the limit of a trial."""
    actions = config.max_steps_per_episode * config.episodes_per_trial
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


def paths_of(kind: type[EnvSettings], config: Mapping[str, Any]) -> dict[str, str]:
    """The files and folders that a configuration names, by their keys."""
    named = marked(kind, config, PATH)
    return {name: value for name, value in named.items() if isinstance(value, str)}


def servers_of(kind: type[EnvSettings], config: Mapping[str, Any]) -> dict[str, Any]:
    """The servers that a configuration names, and what is sent to them as a key."""
    return marked(kind, config, SERVER)


def _plain(servers: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(servers[name])) for name in sorted(servers))
