"""The engine that a trainer's settings ask for."""

from typing import Any

from transformers.integrations import is_deepspeed_zero3_enabled

from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.generation.vllm.trl import TRLVLLMEngine
from agentsgym.training.distributed import Ranks
from agentsgym.types import TrainableEngine


def own_engine(trainer: Any, ranks: Ranks) -> TrainableEngine:
    """A `VLLMEngine` on the servers of `engine_urls`, with `use_vllm` one on TRL's own vLLM, else
    one that runs the trained model. Raises ValueError for a model that is spread over processes."""
    args, tokenizer = trainer.args, trainer.tokenizer
    shared = {"capacity": args.engine_capacity, "stop_token_ids": trainer.eos_token_ids}
    if args.engine_urls:
        vocabulary = trainer.model.get_input_embeddings().num_embeddings
        return VLLMEngine(args.engine_urls, tokenizer, vocab_size=vocabulary, **shared)
    if trainer.use_vllm:
        return TRLVLLMEngine(trainer.vllm_generation, tokenizer, ranks.gather, **shared)
    if trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled():
        raise ValueError(
            "the embedded engine needs the whole model in each process, but FSDP or DeepSpeed "
            "ZeRO-3 spread it; set use_vllm or hand over an engine (docs/distributed.md)"
        )
    return EmbeddedEngine(trainer.accelerator.unwrap_model(trainer.model), tokenizer, **shared)
