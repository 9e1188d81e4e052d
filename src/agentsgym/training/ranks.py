"""Training in several processes: communication between ranks, and the exchange of gradients."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object
from torch import nn

T = TypeVar("T")


class Ranks:
    """Communication between ranks: small Python objects (step tables, counts), never tokens."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.rank: int = accelerator.process_index
        self.world_size: int = accelerator.num_processes

    def gather(self, values: list[Any]) -> list[Any]:
        """The lists of all ranks, joined in rank order. Every rank must call it."""
        if self.world_size == 1:
            return values
        gathered: list[Any] = gather_object(values)
        return gathered

    def slice(self, size: int) -> slice:
        """The position of this rank's `size` items among those of all ranks."""
        return slice(self.rank * size, (self.rank + 1) * size)

    def together(self, act: Callable[[], T]) -> T:
        """The result of `act` on this rank. If it raises on any rank, every rank raises, so that
        none waits for the others forever; all ranks must call it."""
        if self.world_size == 1:
            return act()
        error: Exception | None = None
        try:
            result = act()
        except Exception as raised:
            error = raised
        problems = self.gather([None if error is None else f"{type(error).__name__}: {error}"])
        if error is not None:
            raise error
        for rank, problem in enumerate(problems):
            if problem is not None:
                raise RuntimeError(f"rank {rank} failed: {problem}")
        return result


class Gradients:
    """Accumulates the gradients of chunks; ranks exchange them with the last chunk only."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def exchanged(self, model: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """The context for a chunk's forward and backward pass."""
        if last:
            return nullcontext()
        if self._deepspeed:
            return self._no_deepspeed_step()
        context: AbstractContextManager[Any] = self._accelerator.no_sync(model)
        return context

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of `loss`, which is already scaled."""
        options = {"scale_wrt_gas": False} if self._deepspeed else {}
        self._accelerator.backward(loss, **options)

    @property
    def _deepspeed(self) -> bool:
        return bool(self._accelerator.distributed_type == DistributedType.DEEPSPEED)

    @contextmanager
    def _no_deepspeed_step(self) -> Iterator[None]:
        """Without this, DeepSpeed's backward takes an optimizer step whenever accelerate reports
        that gradients are exchanged: one per chunk."""
        state = self._accelerator.gradient_state
        before = state.sync_gradients
        state._set_sync_gradients(False)
        try:
            yield
        finally:
            state._set_sync_gradients(before)
