"""The engine that a trainer's settings select."""

from typing import Any

import torch
from transformers.integrations import is_deepspeed_zero3_enabled

from agentsgym.envs import ConfigError
from agentsgym.generation.factory import TRAINING, EngineEntry, choose, make_trainable
from agentsgym.generation.settings import EngineParts
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.distributed import Ranks
from agentsgym.types import TrainableEngine, trainable

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def check_engine(engine: Any, args: GRPOEnvConfig) -> None:
    """Check an engine that was passed to the trainer. Raises TypeError with the members that it
    lacks, ValueError if `args` select another one."""
    trainable(engine)
    if args.engine is not None or args.engine_urls:
        asked = "engine" if args.engine is not None else "engine_urls"
        raise ValueError(
            f"the trainer got a {type(engine).__name__}, but {asked} selects another "
            "engine; leave one of them out"
        )


def check_own_engine(args: GRPOEnvConfig) -> None:
    """Check that the engine that `args` select can start on this machine. Raises ConfigError."""
    check_accelerator(choose(args.engine_settings, TRAINING))


def check_accelerator(entry: EngineEntry) -> None:
    """Raise ConfigError if an engine needs a GPU and there is none."""
    if entry.accelerator and not (torch.cuda.is_available() or torch.xpu.is_available()):
        raise ConfigError(
            f"engine {entry.name!r} ({entry.chosen_by}) is TRL's own vLLM, which needs a GPU, and "
            "there is none here; start vLLM servers instead (engine_urls), or leave it out for the "
            "embedded engine"
        )


def own_engine(trainer: Any, ranks: Ranks) -> TrainableEngine:
    """The engine of `trainer.args`, made with the trainer's objects. Raises ValueError for a model
    that is sharded over processes if the engine must sample from it in each process."""
    parts = EngineParts(
        model=lambda: trainer.accelerator.unwrap_model(trainer.model),
        tokenizer=lambda: trainer.tokenizer,
        vocab_size=lambda: trainer.model.get_input_embeddings().num_embeddings,
        stop_token_ids=trainer.eos_token_ids,
        sharded=trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled(),
        vllm_generation=trainer.vllm_generation if trainer.use_vllm else None,
        gather=ranks.gather,
        dtype=sampling_dtype(trainer.accelerator),
    )
    return make_trainable(trainer.args.engine_settings, parts)


def sampling_dtype(accelerator: Any) -> torch.dtype | None:
    """The dtype in which weights that are trained with autocast are sampled from: that in which
    the forward passes of the loss multiply. None without autocast."""
    return _AUTOCAST.get(accelerator.mixed_precision)
