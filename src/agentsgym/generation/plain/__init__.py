"""The plain engine: any causal language model in this process. The first access imports torch."""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.generation.plain.engine import PlainEngine

__all__ = ["PlainEngine"]

__getattr__ = lazy_names(__name__, {"PlainEngine": "engine"})
