"""Chat endpoints (OpenAI-compatible): text in, text out."""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

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

__getattr__ = lazy_names(
    __name__,
    {
        "ChatAgent": "engine",
        "ChatClient": "client",
        "ChatEngine": "engine",
        "EndpointError": "client",
        "MissingKey": "client",
        "Prices": "usage",
        "Reply": "client",
        "Usage": "usage",
        "chat_agent": "engine",
    },
)
