"""vLLM servers over HTTP."""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.generation.vllm.engine import VLLMEngine
    from agentsgym.generation.vllm.protocol import EngineUnavailable
    from agentsgym.generation.vllm.weights import Weights, WeightSyncError

__all__ = ["EngineUnavailable", "VLLMEngine", "WeightSyncError", "Weights"]

__getattr__ = lazy_names(
    __name__,
    {
        "EngineUnavailable": "protocol",
        "VLLMEngine": "engine",
        "WeightSyncError": "weights",
        "Weights": "weights",
    },
)
