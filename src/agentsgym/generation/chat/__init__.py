"""Chat endpoints (OpenAI-compatible): text in, text out."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.generation.chat.client import ChatClient, EndpointError, Reply
    from agentsgym.generation.chat.engine import ChatAgent, ChatEngine, chat_agent
    from agentsgym.generation.chat.usage import Prices, Usage
    from agentsgym.generation.http.keys import MissingKey

__all__ = [
    "ChatAgent",
    "ChatClient",
    "ChatEngine",
    "EndpointError",
    "MissingKey",
    "Prices",
    "Reply",
    "Usage",
    "chat_agent",
]

_HOMES = {
    "ChatAgent": "engine",
    "ChatClient": "client",
    "ChatEngine": "engine",
    "EndpointError": "client",
    "MissingKey": "client",
    "Prices": "usage",
    "Reply": "client",
    "Usage": "usage",
    "chat_agent": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
