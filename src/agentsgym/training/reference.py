"""The reference model of the KL penalty."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from agentsgym.generation.models import is_adapted
from agentsgym.training.loss.batch import TrainRow
from agentsgym.training.loss.logprobs import Pass, Scored, Scorer

REFERENCE_ADAPTER = "ref"
"""TRL's name for the copy of an adapter that was trained before."""


def reference_pass(scorer: Scorer, policy: Callable[[], Any], ref_model: Any) -> Pass:
    """The pass over all rows with the reference: a copy, or (None) the policy without its
    adapter. (Training may wrap the policy.)"""

    def score(rows: Sequence[TrainRow]) -> Scored:
        if ref_model is not None:
            return scorer.logps_of(rows, ref_model)
        with _original_adapter(scorer.accelerator.unwrap_model(policy())):
            return scorer.logps_of(rows, policy())

    return Pass("reference", score)


@contextmanager
def _original_adapter(model: Any) -> Iterator[None]:
    """Inside the block, a PEFT model is its own reference: with its original adapter if it was
    passed with one, otherwise (a new adapter) without any."""
    if REFERENCE_ADAPTER not in model.peft_config:
        with model.disable_adapter():
            yield
        return
    before = model.active_adapter
    model.set_adapter(REFERENCE_ADAPTER)
    try:
        yield
    finally:
        model.set_adapter(before)


@torch.no_grad()
def become_reference(model: Any, ref_model: Any) -> None:
    """Make the current weights of `model` the reference: of a copy (`ref_model`), or of the
    original adapter that a PEFT model keeps. A reference without any adapter stays what it is."""
    if ref_model is not None:
        ref_model.load_state_dict(model.state_dict())
        return
    if REFERENCE_ADAPTER not in getattr(model, "peft_config", {}):
        return
    parameters = dict(model.named_parameters())
    trained, kept = f".{model.active_adapter}.", f".{REFERENCE_ADAPTER}."
    for name, parameter in parameters.items():
        if kept in name:
            parameter.copy_(parameters[name.replace(kept, trained)])


def check_reference(model: Any, beta: float) -> None:
    """Raise ValueError if TRL could not load a reference: it loads the weights in the model's own
    directory, and a model made in this process has none."""
    if beta == 0.0 or isinstance(model, str) or is_adapted(model):
        return
    if not getattr(model.config, "_name_or_path", ""):
        raise ValueError(
            f"beta={beta} needs a reference model, and this model has no directory: save it "
            "(model.save_pretrained(directory)) and pass the directory, or train a LoRA "
            "adapter, whose reference is the model without it"
        )
