"""vLLM: servers over HTTP, and TRL's own vLLM."""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.generation.vllm.engine import VLLMEngine
    from agentsgym.generation.vllm.server_check import EngineUnavailable
    from agentsgym.generation.vllm.trl import TRLVLLMEngine
    from agentsgym.generation.vllm.weights import Weights, WeightSyncError

__all__ = ["EngineUnavailable", "TRLVLLMEngine", "VLLMEngine", "WeightSyncError", "Weights"]

__getattr__ = lazy_names(
    __name__,
    {
        "EngineUnavailable": "server_check",
        "TRLVLLMEngine": "trl",
        "VLLMEngine": "engine",
        "WeightSyncError": "weights",
        "Weights": "weights",
    },
)
