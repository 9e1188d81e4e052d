"""The backward passes of an optimizer step, which are made again if memory runs out, and how far it
moves the weights."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache
from torch import nn
from transformers import TrainerCallback

from agentsgym.generation.embedded.forward import is_out_of_memory
from agentsgym.training.loss.batch import TrainRollout
from agentsgym.training.loss.forest import Layout
from agentsgym.training.loss.objective import MicroBatchLoss, Sums
from agentsgym.training.ranks import Gradients

Learned = tuple[list[Layout], torch.Tensor, list[Sums]]
"""The passes of a micro-batch, its loss, and the metrics of each pass."""


class Update:
    """Adds the gradients of micro-batches, of which `size` make an optimizer step."""

    def __init__(self, loss: MicroBatchLoss, gradients: Gradients, size: int) -> None:
        self._loss = loss
        self._gradients = gradients
        self._size = size
        self._micro_batches: list[Sequence[TrainRollout]] = []

    def learn(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> Learned:
        """Add a micro-batch's gradients: a backward pass per chunk, so the largest chunk limits
        memory.

        A pass for which there is no memory may have added some of its gradients. So all those since
        the last optimizer step are dropped and computed again, once, in passes of half the size.
        """
        if len(self._micro_batches) == self._size:
            self._micro_batches.clear()
        self._micro_batches.append(rollouts)
        try:
            return self._backward(model, rollouts)
        except RuntimeError as error:
            if not is_out_of_memory(error) or not self._loss.scorer.halve():
                raise
        # Here, because the error holds the tensors of its pass.
        clear_device_cache()
        model.zero_grad()
        for earlier in self._micro_batches[:-1]:
            self._backward(model, earlier)
        return self._backward(model, rollouts)

    def _backward(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> Learned:
        """Loss weights are final, so the averaging of gradients over ranks is undone."""
        scorer = self._loss.scorer
        layouts = self._loss.layouts(model, rollouts)
        loss = torch.zeros((), device=scorer.accelerator.device)
        metrics = []
        for number, layout in enumerate(layouts):
            with (
                self._gradients.exchanged(model, last=number == len(layouts) - 1),
                scorer.reading(model, layout),
            ):
                part = self._loss.of_layout(model, layout)
                self._gradients.backward(part.loss * scorer.ranks.world_size)
            loss += part.loss.detach()
            metrics.append(part.metrics)
        return layouts, loss, metrics


# -- how far a step moves the weights --------------------------------------------------------------


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
