"""The engine that a trainer's settings select, and the weights that it gets."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers.integrations import is_deepspeed_zero3_enabled

from agentsgym.envs.extras import ensure
from agentsgym.generation import factory
from agentsgym.generation.settings import (
    SERVE_MODEL,
    EngineParts,
    EngineSettings,
    ModelToServe,
)
from agentsgym.training.collect import source_on
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.ranks import Ranks
from agentsgym.training.settings import TRAIN_CAPACITY
from agentsgym.types import (
    RolloutSource,
    TrainableEngine,
    WeightUpdate,
    trainable,
)
from agentsgym.types.protocols import records_supports

# With autocast, weights are sampled from in the dtype in which the passes of the loss multiply.
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
    """Check that the engine can sample where, when and how `args` want it.

    Raises ValueError for generations played ahead with an engine that cannot sample during the
    optimizer's work, and for top-p or top-k with one that does not record what they leave; for
    actors on Ray ConfigError without a cluster, MissingExtra without Ray, and
    TypeError for an engine whose servers others cannot reach.
    """
    name = type(engine).__name__
    if args.ray.workers:
        source_on("ray").check(engine)
    if args.max_staleness and not engine.can_generate_ahead:
        raise ValueError(
            f"max_staleness={args.max_staleness} needs an engine with a copy of the weights, which "
            f"{name} does not have: let the run start a server (engine={{'launch': 1, 'command': "
            "'serve-model'}), or name servers in engine.urls"
        )
    if (args.top_p < 1.0 or args.top_k > 0) and not records_supports(engine):
        raise ValueError(
            "top_p and top_k need an engine that says which tokens they left, or the importance "
            f"ratio would be biased, and {name} does not: leave them off, or use the embedded or "
            "the plain engine, or servers of serve-model"
        )


def check_launch(settings: EngineSettings) -> None:
    """Raise ConfigError if there is no program that could start the servers, MissingExtra if our
    own lacks a package."""
    if settings.launch and settings.command == SERVE_MODEL:
        ensure("uvicorn", "endpoint")
    else:
        factory.check_launch(settings)


class ModelTrainer(Protocol):
    """One of TRL's trainers, as far as an engine reads it."""

    accelerator: Any
    model: Any
    is_fsdp_enabled: bool


def engine_parts(trainer: ModelTrainer, tokenizer: Any, ranks: Ranks) -> EngineParts:
    """What an engine takes of one of TRL's trainers."""

    def model() -> Any:
        return trainer.accelerator.unwrap_model(trainer.model)

    return EngineParts(
        model=model,
        tokenizer=lambda: tokenizer,
        vocab_size=lambda: trainer.model.get_input_embeddings().num_embeddings,
        sharded=trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled(),
        gather=ranks.gather,
        dtype=_AUTOCAST.get(trainer.accelerator.mixed_precision),
        rank=ranks.rank,
        learns=True,
    )


def own_engine(args: GRPOEnvConfig, parts: EngineParts, note: Note) -> TrainableEngine:
    """The engine that the settings select, made of a trainer's parts; `note` gets a message about
    servers that start. Raises ValueError for a model that is sharded over processes if the engine
    must sample from it in each process."""
    parts = replace(
        parts,
        served=lambda: ModelToServe(
            parts.model(), parts.tokenizer(), parts.dtype, args.max_rollout_tokens
        ),
        directory=lambda: Path(args.output_dir) / "servers",
        note=note,
    )
    return factory.make_trainable(args.engine, parts)


class WeightSync:
    """Updates an engine's weights; `directory` is a folder in which it may write them."""

    def __init__(self, engine: TrainableEngine, directory: Path, ranks: Ranks) -> None:
        self._engine = engine
        self._directory = directory
        self._ranks = ranks
        self._pushed: int | None = None

    def push(
        self, model: Any, version: int, source: RolloutSource | None = None
    ) -> dict[str, float]:
        """Let the engine sample from the current weights of `model`. Every rank must call it.

        `version` is the optimizer's step, which rollouts will record. A `source` that plays in the
        background passes the weights on. Returns the seconds that new weights took, by metric;
        nothing where the engine and the trainer share them, and in processes that write none.
        Raises RuntimeError if the engine then reports another version, and the engine's own errors.
        """
        started = time.perf_counter()
        update = WeightUpdate(
            model,
            version,
            self._directory,
            changed=version != self._pushed,
            rank=self._ranks.rank,
            gather=self._ranks.gather,
        )
        if source is None:
            self._engine.update_weights(update)
        else:
            source.use_weights(update)
        if self._engine.policy_version != version:
            raise RuntimeError(
                f"{type(self._engine).__name__} was given the weights of version {version}, but "
                f"its policy_version is {self._engine.policy_version}"
            )
        self._pushed = version
        if not (update.changed and update.rank == 0 and self._engine.can_generate_ahead):
            return {}
        return {"time/weights": time.perf_counter() - started}

    def forget(self) -> None:
        """Push the weights again: they changed although there was no optimizer step."""
        self._pushed = None
