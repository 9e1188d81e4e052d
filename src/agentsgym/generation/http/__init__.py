"""Shared parts of engines over HTTP: the client, its event loop, keys, the engine base class."""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.generation.http.client import (
        HttpError,
        JsonClient,
        Refused,
        Retries,
        Unreachable,
    )
    from agentsgym.generation.http.engine import RemoteEngine, request_seed
    from agentsgym.generation.http.event_loop import LoopThread
    from agentsgym.generation.http.keys import MissingKey, read_key

__all__ = [
    "HttpError",
    "JsonClient",
    "LoopThread",
    "MissingKey",
    "Refused",
    "RemoteEngine",
    "Retries",
    "Unreachable",
    "read_key",
    "request_seed",
]

__getattr__ = lazy_names(
    __name__,
    {
        "HttpError": "client",
        "JsonClient": "client",
        "LoopThread": "event_loop",
        "MissingKey": "keys",
        "Refused": "client",
        "RemoteEngine": "engine",
        "Retries": "client",
        "Unreachable": "client",
        "read_key": "keys",
        "request_seed": "engine",
    },
)
