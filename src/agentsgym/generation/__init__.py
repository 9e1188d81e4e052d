"""Engines that sample actions for many sessions behind one protocol (`agentsgym.types.Engine`).

Importing this package stays light: torch is imported on the first access to `EmbeddedEngine`, and
aiohttp when an engine over HTTP is made.
"""

from typing import TYPE_CHECKING

from agentsgym.types.lazy import lazy_names

if TYPE_CHECKING:
    from agentsgym.generation.embedded.compatibility import UnsupportedModelError
    from agentsgym.generation.embedded.engine import EmbeddedEngine
    from agentsgym.generation.vllm.engine import VLLMEngine
    from agentsgym.generation.vllm.server_check import EngineUnavailable

__all__ = ["EmbeddedEngine", "EngineUnavailable", "UnsupportedModelError", "VLLMEngine"]

__getattr__ = lazy_names(
    __name__,
    {
        "EmbeddedEngine": "embedded.engine",
        "EngineUnavailable": "vllm.server_check",
        "UnsupportedModelError": "embedded.compatibility",
        "VLLMEngine": "vllm.engine",
    },
)
