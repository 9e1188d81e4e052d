"""The head of the loss: `model(…, labels=…, fused_lm_head=True)` returns log-probabilities and
entropies of the labeled positions, and never the logits of all positions.

TRL 1.16 gives the models of its trainer such a head. Before 1.15 TRL has none, and that of 1.15
runs on Triton alone, so for these versions the models get ours.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput
from trl.trainer import utils

from agentsgym.generation.adapted import is_adapted
from agentsgym.training.loss.positions import only_at

TRL_HAS_HEAD = hasattr(utils, "_use_triton")
"""Whether the installed TRL has a head that also runs without Triton."""

_IGNORED = -100
_TILE = 8192  # columns; SmolLM2's head, 256 positions: 0.9 s against 1.2 s with 32,768


@dataclass
class LabeledOutput(ModelOutput):  # type: ignore[misc]
    """`log_probs` and `entropy` (nats), shape (B, T-1), 0 at positions without a label, and
    `aux_loss`, the model's own auxiliary loss or None."""

    log_probs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    aux_loss: torch.Tensor | None = None


def ensure_head(model: Any, temperature: float) -> None:
    """Give `model` a head at this temperature if TRL's trainer did not."""
    if not TRL_HAS_HEAD:
        add_own_head(_core(model), temperature)


@contextmanager
def fused_head_on_agent_tokens(device: torch.device, vocabulary: int) -> Iterator[None]:
    """Inside the block, forward passes with `fused_lm_head=True` only compute labeled positions,
    also on the CPU, in tiles of the vocabulary that suit its cache.

    With its Triton kernels TRL's fused head skips positions without a label. Otherwise it computes
    every position, because a changing number of positions would recompile compiled kernels. Torch
    on the CPU compiles nothing here, and the head is a large part of a small model. Its tiles have
    32,768 columns even for a small vocabulary, whose rows then lie 128 KiB apart; a narrower tile
    gives the same bits in half of the time there, and less memory where the vocabulary is large.
    Our own head only ever computes labeled positions.
    """
    if device.type != "cpu" or not TRL_HAS_HEAD:
        yield
        return
    before = utils._use_triton, utils._CHUNKED_LOGPROB_CHUNK_SIZE
    utils._use_triton = lambda device: True
    utils._CHUNKED_LOGPROB_CHUNK_SIZE = min(vocabulary, _TILE)
    try:
        yield
    finally:
        utils._use_triton, utils._CHUNKED_LOGPROB_CHUNK_SIZE = before


def add_head(model: Any, temperature: float) -> None:
    """Give a model without an adapter the head that this version of TRL calls for."""
    if TRL_HAS_HEAD:
        utils.add_fused_lm_head(model, temperature, outputs=("log_probs", "entropy"))
    else:
        add_own_head(model, temperature)


def add_own_head(model: Any, temperature: float) -> None:
    """Let `model.forward` take `fused_lm_head=True`; other calls stay what they are."""
    original = model.forward

    # `generate` compares its arguments with the signature of the class.
    @functools.wraps(type(model).forward)
    def forward(
        self: Any, *args: Any, labels: Any = None, fused_lm_head: bool = False, **options: Any
    ) -> Any:
        if fused_lm_head:
            head = self.get_output_embeddings()
            call = functools.partial(original, *args, **options, use_cache=False)
            return _score_labels(call, head, labels, temperature)
        return original(*args, **options if labels is None else {**options, "labels": labels})

    model.forward = MethodType(forward, model)


def _core(model: Any) -> Any:
    """The model inside its adapter."""
    return model.get_base_model() if is_adapted(model) else model


def _score_labels(
    call: Any, head: nn.Module, labels: torch.Tensor, temperature: float
) -> LabeledOutput:
    """One forward pass with logits at labeled positions alone. They are the model's own, with its
    soft caps and scales.

    `masked_scatter` keeps the result connected to the weights if no position has a label.
    """
    labels = labels[:, 1:]
    labeled = labels != _IGNORED
    with only_at(head, *labeled.nonzero(as_tuple=True)):
        output = call()
    logits = output.logits[0]
    if logits.dtype != torch.float64:
        logits = logits.float()
    table = torch.log_softmax(logits / temperature, dim=-1)
    logps = table.gather(-1, labels[labeled][:, None])[:, 0]
    entropy = -(table.exp() * table).sum(-1)

    def placed(values: torch.Tensor) -> torch.Tensor:
        return values.new_zeros(labeled.shape).masked_scatter(labeled, values)

    return LabeledOutput(
        log_probs=placed(logps), entropy=placed(entropy), aux_loss=getattr(output, "aux_loss", None)
    )
