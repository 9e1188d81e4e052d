"""The engine that a trainer's settings select."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.integrations import is_deepspeed_zero3_enabled

from agentsgym.envs import ConfigError
from agentsgym.generation.embedded.in_process import end_of_turn_ids
from agentsgym.generation.factory import make_trainable
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.generation.vllm.launcher import NoCommand, find_program
from agentsgym.generation.vllm.weight_files import served_model
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.ranks import Ranks
from agentsgym.training.settings import TRAIN_CAPACITY
from agentsgym.types import TrainableEngine, trainable

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
Note = Callable[[str], None]


def check_engine_settings(args: GRPOEnvConfig, engine: Any) -> None:
    """Check, before anything is loaded, the engine that was passed to the trainer, or (None) that
    the one that `args` select can start on this machine. Raises TypeError with the members that an
    engine lacks, ValueError if `args` also say how to make one, ConfigError without a program that
    could start the servers."""
    if engine is None:
        check_launch(args.engine)
        return
    trainable(engine)
    if args.engine != EngineSettings(capacity=TRAIN_CAPACITY):
        raise ValueError(
            f"the trainer got a {type(engine).__name__}, but the section engine says how to make "
            "another one; leave one of them out"
        )


def check_engine_at_work(args: GRPOEnvConfig, engine: TrainableEngine) -> None:
    """Check that the engine can sample where and when `args` want it.

    Raises ValueError for generations played ahead with an engine that cannot sample during the
    optimizer's work; for actors on Ray ConfigError without a cluster, MissingExtra without Ray, and
    TypeError for an engine whose servers others cannot reach.
    """
    name = type(engine).__name__
    if args.ray.workers:
        if not isinstance(engine, VLLMEngine):
            raise TypeError(
                f"ray.workers sample from the servers of a VLLMEngine, not from a {name}"
            )
        from agentsgym.rollout.ray.source import connect

        connect()
    if args.max_staleness and not engine.can_generate_ahead:
        raise ValueError(
            f"max_staleness={args.max_staleness} needs an engine with a copy of the weights, which "
            f"{name} does not have: set engine='process', or name vLLM servers in engine.urls"
        )


def check_launch(settings: EngineSettings) -> None:
    """Raise ConfigError if there is no program that could start the servers."""
    if settings.launch:
        try:
            find_program(settings.command)
        except NoCommand as error:
            raise ConfigError(str(error)) from None


def engine_parts(trainer: Any, tokenizer: Any, ranks: Ranks) -> EngineParts:
    """What an engine takes of one of TRL's trainers."""

    def model() -> Any:
        return trainer.accelerator.unwrap_model(trainer.model)

    return EngineParts(
        model=model,
        tokenizer=lambda: tokenizer,
        vocab_size=lambda: trainer.model.get_input_embeddings().num_embeddings,
        stop_token_ids=end_of_turn_ids(tokenizer, model()),
        sharded=trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled(),
        gather=ranks.gather,
        dtype=sampling_dtype(trainer.accelerator),
        rank=ranks.index,
        learns=True,
    )


def own_engine(trainer: Any, ranks: Ranks, note: Note) -> TrainableEngine:
    """The engine of `trainer.args`, made with the trainer's objects; `note` is told of servers that
    start. Raises ValueError for a model that is sharded over processes if the engine must sample
    from it in each process."""
    args: GRPOEnvConfig = trainer.args
    parts = engine_parts(trainer, trainer.tokenizer, ranks)
    parts = replace(
        parts,
        served=lambda directory: served_model(
            parts.model(),
            trainer.tokenizer,
            directory,
            dtype=parts.dtype,
            context=args.max_rollout_tokens,
        ),
        directory=lambda: Path(args.output_dir) / "servers",
        note=note,
    )
    return make_trainable(args.engine, parts)


def sampling_dtype(accelerator: Any) -> torch.dtype | None:
    """The dtype in which weights that are trained with autocast are sampled from: that in which
    the forward passes of the loss multiply. None without autocast."""
    return _AUTOCAST.get(accelerator.mixed_precision)
