"""A numerical check, at construction, that the slots give the same logits as the plain model.

Configurations do not name every special feature of an architecture; a few short passes find them.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentsgym.generation.embedded.attention import slot_attention_on
from agentsgym.generation.embedded.batch import RowTable
from agentsgym.generation.embedded.compatibility import UnsupportedModelError
from agentsgym.generation.embedded.forward import plan_pass, run_pass
from agentsgym.generation.embedded.kv_cache import SlotMemory
from agentsgym.types import SamplingParams

_LENGTHS = (7, 4)
_FIRST_READ = 4
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
_LOW_PRECISION = 0.1


def check_exact(model: Any, layers: int, vocabulary: int, device: torch.device) -> None:
    """Raise UnsupportedModelError if slots and a plain forward disagree on a few tokens.

    Two sequences are read, one in two chunks; `model` is in evaluation mode, without gradients.
    """
    sequences = [(np.arange(1, n + 1) * 7919 * n) % vocabulary for n in _LENGTHS]
    plain = [_plain_logits(model, ids, device) for ids in sequences]
    try:
        ours = _slot_logits(model, layers, sequences, device)
    except UnsupportedModelError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not run with slot attention: {error}"
        ) from error
    tolerance = _tolerance(model)
    for expected, actual in zip(plain, ours, strict=True):
        scale = 1 + float(expected.abs().max())
        gap = float((expected - actual).abs().max()) / scale
        if gap > tolerance:
            raise UnsupportedModelError(
                f"{type(model).__name__} gives other logits with slot attention than by itself "
                f"(relative difference {gap:.2g}): its positions or attention are unusual"
            )


def _tolerance(model: Any) -> float:
    """That of the coarsest numbers in the model: some of its parts may be of another dtype."""
    dtypes = {parameter.dtype for parameter in model.parameters()}
    return max(_TOLERANCE.get(dtype, _LOW_PRECISION) for dtype in dtypes)


def _plain_logits(model: Any, ids: Any, device: torch.device) -> Tensor:
    output = model(input_ids=torch.from_numpy(ids).to(device)[None], use_cache=False)
    logits: Tensor = output.logits[0, -1].float()
    return logits


def _slot_logits(
    model: Any, layers: int, sequences: list[Any], device: torch.device
) -> list[Tensor]:
    memory, table = SlotMemory(layers), RowTable()
    memory.resize(len(sequences), 16)
    table.resize(len(sequences), 16)
    for row, ids in enumerate(sequences):
        table.open(row, ids, SamplingParams(), seed=0, sampled_before=0)
    table.known[0] = _FIRST_READ
    logits: dict[int, Tensor] = {}
    with slot_attention_on(model.config):
        for _ in range(2):
            plan = plan_pass(table, budget=64)
            after = run_pass(model, memory, table, plan, device)
            logits |= dict(zip(plan.rows[plan.finished].tolist(), after, strict=True))
            table.active[1] = False
            table.known[0] = len(sequences[0])
    return [logits[row] for row in range(len(sequences))]
