"""The embedded engine: a Hugging Face model in this process. The first access imports torch."""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.generation.embedded.engine import EmbeddedEngine
    from agentsgym.generation.models import UnsupportedModelError

__all__ = ["EmbeddedEngine", "UnsupportedModelError"]

__getattr__ = lazy_names(
    __name__,
    {
        "EmbeddedEngine": "engine",
        "UnsupportedModelError": "compatibility",
    },
)
