"""Paths in an `env_config`: the program's own are trusted, those in dataset rows are not.

A row may name files in agentsgym's cache, under `ALFWORLD_DATA`, and in directories that the caller
allows. It may also name paths that this program has given to an environment, because the rows of an
environment's own dataset repeat its configuration.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentsgym.envs.cache_folder import cache_folder
from agentsgym.envs.config import Key
from agentsgym.types import AllowPaths, allowed_directories, checked_path, real_path
from agentsgym.types.errors import ConfigError

_GIVEN: set[Path] = set()


def remember_paths(keys: Mapping[str, Key], config: Mapping[str, Any]) -> None:
    """Trust the paths of this configuration from now on."""
    _GIVEN.update(real_path(value) for _, value in given_paths(keys, config))


def check_paths(
    env_name: str, keys: Mapping[str, Key], config: Mapping[str, Any], allow_paths: AllowPaths
) -> None:
    """Raise ConfigError if a row's configuration names a path that is not allowed."""
    for name, value in given_paths(keys, config):
        try:
            checked_path(value, [*shared_directories(allow_paths), *_GIVEN])
        except (ValueError, RuntimeError, OSError) as error:
            raise ConfigError(f"{env_name}: env_config[{name!r}]: {error}") from None


def shared_directories(allow_paths: AllowPaths = ()) -> list[Path]:
    """Directories in which the rows of any environment may name files."""
    official = os.environ.get("ALFWORLD_DATA")
    ours = [str(cache_folder("")), *([official] if official else [])]
    return [*allowed_directories(allow_paths), *map(real_path, ours)]


def given_paths(keys: Mapping[str, Key], config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each key whose value is a path, with that path."""
    for name, key in keys.items():
        if key.is_path and isinstance(config.get(name), str):
            yield name, config[name]
