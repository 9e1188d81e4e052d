"""Training: warm start and GRPO on environments. Importing names from here imports torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.training.config import GRPOEnvConfig
    from agentsgym.training.trainer import GRPOEnvTrainer

__all__ = ["GRPOEnvConfig", "GRPOEnvTrainer"]

_HOMES = {
    "GRPOEnvConfig": "agentsgym.training.config",
    "GRPOEnvTrainer": "agentsgym.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentsgym.training' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
