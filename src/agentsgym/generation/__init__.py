"""Engines that sample actions for many sessions behind one protocol (`agentsgym.types.Engine`).

Importing this package stays light: torch is imported on the first access to `EmbeddedEngine`.
"""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.generation.embedded.engine import EmbeddedEngine
    from agentsgym.generation.models import UnsupportedModelError
    from agentsgym.generation.plain import PlainEngine
    from agentsgym.generation.vllm.engine import VLLMEngine
    from agentsgym.generation.vllm.protocol import EngineUnavailable

__all__ = [
    "EmbeddedEngine",
    "EngineUnavailable",
    "PlainEngine",
    "UnsupportedModelError",
    "VLLMEngine",
]

__getattr__ = lazy_names(
    __name__,
    {
        "EmbeddedEngine": "embedded.engine",
        "EngineUnavailable": "vllm.protocol",
        "PlainEngine": "plain",
        "UnsupportedModelError": "models",
        "VLLMEngine": "vllm.engine",
    },
)
