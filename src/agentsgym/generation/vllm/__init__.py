"""vLLM: servers over HTTP, and TRL's own vLLM."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.generation.vllm.engine import VLLMEngine
    from agentsgym.generation.vllm.server_check import EngineUnavailable
    from agentsgym.generation.vllm.trl import TRLVLLMEngine
    from agentsgym.generation.vllm.weights import Weights, WeightSyncError

__all__ = ["EngineUnavailable", "TRLVLLMEngine", "VLLMEngine", "WeightSyncError", "Weights"]

_HOMES = {
    "EngineUnavailable": "server_check",
    "TRLVLLMEngine": "trl",
    "VLLMEngine": "engine",
    "WeightSyncError": "weights",
    "Weights": "weights",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
