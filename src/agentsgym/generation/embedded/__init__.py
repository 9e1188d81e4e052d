"""The embedded engine: a Hugging Face model in this process. The first access imports torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.generation.embedded.compatibility import UnsupportedModelError
    from agentsgym.generation.embedded.engine import EmbeddedEngine

__all__ = ["EmbeddedEngine", "UnsupportedModelError"]

_HOMES = {
    "EmbeddedEngine": "engine",
    "UnsupportedModelError": "compatibility",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
