"""Backward passes of a micro-batch that is learned chunk by chunk, on one rank or many."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import nn


class Gradients:
    """Adds up the gradients of chunks; ranks exchange them with the last chunk only."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def exchanged(self, model: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """The context of a chunk's forward and backward pass."""
        if last:
            return nullcontext()
        if self._deepspeed:
            return self._no_deepspeed_step()
        context: AbstractContextManager[Any] = self._accelerator.no_sync(model)
        return context

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of `loss`, whose scale is final."""
        options = {"scale_wrt_gas": False} if self._deepspeed else {}
        self._accelerator.backward(loss, **options)

    @property
    def _deepspeed(self) -> bool:
        return bool(self._accelerator.distributed_type == DistributedType.DEEPSPEED)

    @contextmanager
    def _no_deepspeed_step(self) -> Iterator[None]:
        """DeepSpeed's backward takes an optimiser step wherever accelerate says that gradients
        are exchanged: one per chunk, were it not told otherwise."""
        state = self._accelerator.gradient_state
        before = state.sync_gradients
        state._set_sync_gradients(False)
        try:
            yield
        finally:
            state._set_sync_gradients(before)
