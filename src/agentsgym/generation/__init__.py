"""Engines that sample actions for many sessions behind one protocol (`agentsgym.types.Engine`).

Importing this package stays light: torch is imported on the first access to `EmbeddedEngine`, and
aiohttp when an engine over HTTP is made.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.generation.embedded.compatibility import UnsupportedModelError
    from agentsgym.generation.embedded.engine import EmbeddedEngine
    from agentsgym.generation.vllm.engine import VLLMEngine
    from agentsgym.generation.vllm.server_check import EngineUnavailable

__all__ = ["EmbeddedEngine", "EngineUnavailable", "UnsupportedModelError", "VLLMEngine"]

_HOMES = {
    "EmbeddedEngine": "embedded.engine",
    "EngineUnavailable": "vllm.server_check",
    "UnsupportedModelError": "embedded.compatibility",
    "VLLMEngine": "vllm.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
