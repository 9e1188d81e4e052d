"""Warm start: a tiny model that imitates a teacher. Importing names from here imports torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.training.warm_start.config import WarmStartConfig
    from agentsgym.training.warm_start.loop import WarmStartResult, warm_start

__all__ = ["WarmStartConfig", "WarmStartResult", "warm_start"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.loop"), name)
