"""The backward passes of an optimizer step, which are made again if memory runs out."""

from collections.abc import Sequence

import torch
from accelerate.utils.memory import clear_device_cache
from torch import nn

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
