"""Engines that sample actions for many sessions behind one protocol (`agentsgym.types.Engine`).

Importing this package stays light: torch is imported on the first access to `EmbeddedEngine`.
"""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.generation.embedded.engine import EmbeddedEngine
    from agentsgym.generation.models import EngineUnavailable, UnsupportedModelError

__all__ = [
    "EmbeddedEngine",
    "EngineUnavailable",
    "UnsupportedModelError",
]

__getattr__ = lazy_names(
    __name__,
    {
        "EmbeddedEngine": "embedded.engine",
        "EngineUnavailable": "models",
        "UnsupportedModelError": "models",
    },
)
