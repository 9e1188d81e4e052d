"""A section of a run file that names one chat endpoint."""

from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.generation.factory import Purpose, choose
from agentsgym.runs.config import check_keys
from agentsgym.runs.engine_config import ENDPOINT_KEYS, EngineConfig, parse_engine

CHAT = "chat"
_KEYS = {"engine_urls": "urls", "engine_capacity": "capacity"}


def parse_endpoint(given: Any, section: str) -> EngineConfig:
    """The endpoint that the section `section` (a dotted key) names.

    Raises ConfigError for an unknown key or a bad value.
    """
    check_keys(given, ENDPOINT_KEYS, f"{section}.")
    try:
        return parse_engine({**given, "name": CHAT})
    except ConfigError as error:
        raise ConfigError(f"{section}{str(error).removeprefix('engine')}") from None


def purpose_of(section: str) -> Purpose:
    """The purpose of the endpoint in `section`; its settings have the names of the section."""
    return Purpose(training=False, written=lambda key: f"{section}.{_KEYS.get(key, key)}")


def check_complete(endpoint: EngineConfig, section: str) -> None:
    """Raise ConfigError if an endpoint lacks a key, or names more than one address."""
    try:
        choose(endpoint.settings(), purpose_of(section))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if len(endpoint.urls) > 1:
        raise ConfigError(f"{section}.urls names one endpoint, got {len(endpoint.urls)}")
