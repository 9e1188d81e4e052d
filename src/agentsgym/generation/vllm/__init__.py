"""vLLM servers over HTTP."""

from agentsgym.generation.vllm.engine import VLLMEngine

__all__ = ["VLLMEngine"]
