"""Engines that sample actions for many sessions behind one protocol (`agentsgym.types.Engine`).

Importing this package stays light: torch is imported when `EmbeddedEngine` is first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.generation.embedded import EmbeddedEngine
    from agentsgym.generation.support import UnsupportedModelError

__all__ = ["EmbeddedEngine", "UnsupportedModelError"]


def __getattr__(name: str) -> Any:
    if name == "EmbeddedEngine":
        from agentsgym.generation.embedded import EmbeddedEngine

        return EmbeddedEngine
    if name == "UnsupportedModelError":
        from agentsgym.generation.support import UnsupportedModelError

        return UnsupportedModelError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
