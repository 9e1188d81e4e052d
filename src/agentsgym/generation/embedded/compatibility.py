"""Decides which models the embedded engine can run exactly; all others are refused by name.

Configurations do not name every special feature of an architecture, so a few short passes then
compare the engine's logits with the model's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentsgym.generation.embedded.attention import packed_attention_on
from agentsgym.generation.embedded.batch import RowTable
from agentsgym.generation.embedded.forward import is_of_device, plan_pass, run_pass
from agentsgym.generation.embedded.kv_cache import KVMemory
from agentsgym.generation.embedded.precision import HALF, exactly, is_half
from agentsgym.generation.models import UnsupportedModelError, rope_parameters
from agentsgym.types import SamplingParams

_LAYER_TYPES = {"full_attention", "sliding_attention"}
_LENGTHS = (7, 4)
_FIRST_READ = 4
_WINDOW = 3  # shorter than what the second pass reads, and than the first
_TOLERANCE = {torch.float64: 1e-6} | dict.fromkeys((torch.float32, *HALF), 1e-3)
_QUANTIZED = 0.1


def check_supported(model: Any) -> None:
    """Raise UnsupportedModelError with every reason why `model` cannot be run exactly."""
    reasons = list(unpackable(model))
    if reasons:
        raise UnsupportedModelError(
            f"the embedded engine does not support {type(model).__name__}: {'; '.join(reasons)}"
        )


def check_causal(model: Any) -> None:
    """Raise ValueError if no engine of this process can sample from `model`."""
    for reason in _not_causal(model):
        raise ValueError(f"{type(model).__name__} is no causal language model: {reason}")


def _not_causal(model: Any) -> Iterator[str]:
    if getattr(model.config, "is_encoder_decoder", False):
        yield "it is an encoder-decoder"
    if getattr(model.config.get_text_config(), "use_bidirectional_attention", False) is True:
        yield "its attention is bidirectional (use_bidirectional_attention)"


def unpackable(model: Any) -> Iterator[str]:
    """Why packed passes over `model` would be wrong, as its class and configuration say."""
    config = model.config.get_text_config()
    yield from _not_causal(model)
    if not getattr(model, "_supports_attention_backend", False):
        yield "its attention cannot be replaced (no attention backend in transformers)"
    others = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES)
    if others:
        yield f"it has layers of type {', '.join(others)} (not {' or '.join(sorted(_LAYER_TYPES))})"
    if any("mrope_section" in rope for rope in rope_parameters(config)):
        yield "it has multimodal positions (mrope_section)"
    if getattr(config, "alibi", False):
        yield "it uses ALiBi positions (alibi)"


def check_exact(model: Any, layers: int, vocabulary: int, device: torch.device) -> int:
    """Raise UnsupportedModelError if packed and plain passes disagree on a few tokens; return the
    bytes of a token's keys and values.

    Two sequences are read, one in two chunks; `model` is in evaluation mode, without gradients.
    Sliding windows are narrowed for these passes, so that the sequences are longer. They are
    compared in float32, and a model in 16 bits then reads them once as it is.
    """
    sequences = [(np.arange(1, n + 1) * 7919 * n) % vocabulary for n in _LENGTHS]
    with narrow_windows(model, _WINDOW):
        with exactly(model, device):
            plain = [_plain_logits(model, ids, device) for ids in sequences]
        try:
            with exactly(model, device):
                ours, token_bytes = _packed_logits(model, layers, sequences, device)
            if is_half(model):
                _, token_bytes = _packed_logits(model, layers, sequences, device)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            if is_of_device(error):
                raise
            raise UnsupportedModelError(
                f"{type(model).__name__} does not run with packed attention: {error}"
            ) from error
    tolerance = tolerance_of(model)
    for expected, actual in zip(plain, ours, strict=True):
        scale = 1 + float(expected.abs().max())
        gap = float((expected - actual).abs().max()) / scale
        if gap > tolerance:
            raise UnsupportedModelError(
                f"{type(model).__name__} gives other logits with packed attention than by itself "
                f"(relative difference {gap:.2g}): its positions or attention are unusual"
            )
    return token_bytes


@contextmanager
def narrow_windows(model: Any, window: int) -> Iterator[None]:
    """Let all sliding windows of the model, if it has any, be `window` tokens for this block.

    Raises UnsupportedModelError if its layers have windows of other sizes than its configuration.
    """
    config = model.config.get_text_config()
    size = getattr(config, "sliding_window", None)
    holders = [m for m in model.modules() if getattr(m, "sliding_window", None) is not None]
    sizes = {holder.sliding_window for holder in holders}
    if not sizes <= {size}:
        raise UnsupportedModelError(
            f"{type(model).__name__} has layers with sliding windows of {sorted(sizes)} tokens, "
            f"but its configuration says {size}"
        )
    if size is None:
        yield
        return
    for holder in (config, *holders):
        holder.sliding_window = window
    try:
        yield
    finally:
        for holder in (config, *holders):
            holder.sliding_window = size


def tolerance_of(model: Any) -> float:
    """That of passes `exactly` made with the coarsest numbers in the model: some of its parts may
    be of another dtype."""
    dtypes = {parameter.dtype for parameter in model.parameters()}
    return max(_TOLERANCE.get(dtype, _QUANTIZED) for dtype in dtypes)


def _plain_logits(model: Any, ids: Any, device: torch.device) -> Tensor:
    output = model(input_ids=torch.from_numpy(ids).to(device)[None], use_cache=False)
    logits: Tensor = output.logits[0, -1].float()
    return logits


def _packed_logits(
    model: Any, layers: int, sequences: list[Any], device: torch.device
) -> tuple[list[Tensor], int]:
    memory, table = KVMemory(layers), RowTable()
    memory.grow(len(sequences), 16)
    table.grow(len(sequences), 16)
    for row, ids in enumerate(sequences):
        table.open(row, ids, SamplingParams(), seed=0, sampled_before=0)
    table.known[0] = _FIRST_READ
    logits: dict[int, Tensor] = {}
    with packed_attention_on(model.config):
        for _ in range(2):
            plan = plan_pass(table, memory, budget=64)
            after = run_pass(model, memory, table, plan, device)
            logits |= dict(zip(plan.rows[plan.finished].tolist(), after, strict=True))
            table.active[1] = False
            table.known[0] = len(sequences[0])
    return [logits[row] for row in range(len(sequences))], memory.token_bytes
