"""The teacher of distillation: a model in each process, or a vLLM server."""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentsgym.envs import ConfigError
from agentsgym.generation.factory import make_engine
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import TrainRollout, TrainRow
from agentsgym.training.loss.logprobs import Pass, Scorer
from agentsgym.training.trl_base import add_head


def teacher_pass(args: GRPOEnvConfig, scorer: Scorer, tokenizer: Any, dtype: torch.dtype) -> Pass:
    """The pass over the rows of all rollouts that did not fail with `args.teacher_model`, a model
    of the process in this type, or a server. `scorer` is the policy's, and unused.

    Raises ConfigError for a model that cannot be loaded, or has another vocabulary, and
    EngineUnavailable for a server that cannot be used.
    """
    place, accelerator = args.teacher_model or "", scorer.accelerator
    if args.teacher_on_server:
        settings = EngineSettings(urls=[place], key_env=args.teacher_key_env)
        parts = EngineParts(tokenizer=lambda: tokenizer)
        engine: Any = make_engine(settings, parts, training=False)
        engine.check_tokenizer()
        together = scorer.ranks.together
        return Pass("teacher", lambda rows: together(lambda: _scores_of(rows, engine)), _live)
    if any(getattr(accelerator.state, f"{name}_plugin", None) for name in ("fsdp", "deepspeed")):
        raise ConfigError(
            "teacher_model: with FSDP and DeepSpeed a teacher is no model of the process; serve it "
            "with vLLM, and name its URL"
        )
    model = _load(place, tokenizer, dtype)
    add_head(model, args.temperature)
    model = accelerator.prepare_model(model.eval(), evaluation_mode=True)
    own = copy(scorer)  # whether rows can share prefixes depends on the model
    return Pass("teacher", lambda rows: own.logps_of(rows, model), _live)


def _live(rollout: TrainRollout) -> bool:
    return not rollout.played.failed


def _load(place: str, tokenizer: Any, dtype: torch.dtype) -> Any:
    """The model in a directory, or of that name, of which only safetensors are read."""
    if (Path(place) / "adapter_config.json").is_file():
        raise ConfigError(
            f"teacher_model={place} is an adapter; `agentsgym merge` makes a model of it"
        )
    try:
        own = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            place, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"teacher_model={place} cannot be loaded: {reason}") from error
    known = own.get_vocab()
    for token, number in tokenizer.get_vocab().items():
        if known.get(token) != number:
            raise ConfigError(
                f"teacher_model={place} has another tokenizer: {token!r} is {number} for the "
                f"policy and {known.get(token)} for the teacher, which would score other texts"
            )
    return model


def _scores_of(rows: Sequence[TrainRow], engine: Any) -> list[tuple[TrainRow, torch.Tensor]]:
    """Each row that has tokens with loss with their log-probabilities at a server."""
    spoken = [row for row in rows if row.agent_tokens]
    if any(len(row.supports) for row in spoken):
        raise ConfigError(
            "teacher_model: a server scores tokens among the whole vocabulary, and with top_p, "
            "top_k or constrained actions they were chosen from less; load the teacher here, by "
            "its directory"
        )
    scores = engine.score([row.token_ids.tolist() for row in spoken])
    return [
        (row, torch.tensor(score)[row.positions]) for row, score in zip(spoken, scores, strict=True)
    ]
