"""How far an optimizer step moves the weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback

_TENSORS, _ENTRIES = 32, 4096
"""Of the trained weights at most so many tensors are measured, spread evenly, and of each so many
entries from its beginning: a fixed cost for any model."""


class UpdateSize(TrainerCallback):  # type: ignore[misc]
    """Records `update_size`: the norm of an optimizer step's change of a sample of the trained
    weights, divided by the norm of these weights. Of weights that are split over processes it is
    the share of this one that is measured."""

    def __init__(self, record: Callable[[str, float], None]) -> None:
        self._record = record
        self._before: list[torch.Tensor] = []

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Copy the sample."""
        self._before = sample(model)

    def on_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Compare it."""
        before, self._before = self._before, []
        pairs = zip(sample(model), before, strict=True)
        moved, size = _norm([new - old for new, old in pairs]), _norm(before)
        if size > 0:
            self._record("update_size", moved / size)


def sample(model: nn.Module) -> list[torch.Tensor]:
    """Copies of the entries that are measured, float32."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    spread = range(0, len(trained), -(-len(trained) // _TENSORS) or 1)
    return [
        _local(trained[number].detach()).flatten()[:_ENTRIES].float().clone() for number in spread
    ]


def _norm(parts: list[torch.Tensor]) -> float:
    """The norm of all together, 0 of none; a GPU is waited for once."""
    if not parts:
        return 0.0
    squares = [part.square().sum().to(parts[0].device) for part in parts]
    return float(torch.stack(squares).sum().sqrt())


def _local(weight: Any) -> torch.Tensor:
    """This process's part of a weight."""
    part: torch.Tensor = weight.to_local() if hasattr(weight, "to_local") else weight
    return part
