"""Chat endpoints (OpenAI-compatible): text in, text out."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.generation.chat.engine import ChatEngine

__all__ = ["ChatEngine"]

_HOMES = {
    "ChatEngine": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
