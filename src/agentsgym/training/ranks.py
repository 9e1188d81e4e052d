"""Training in several processes: communication between ranks, and the exchange of gradients."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, gather_object
from torch import nn

from agentsgym.types.names import ConfigError

T = TypeVar("T")


class OtherRankFailed(RuntimeError):
    """Training ends in this process because another one failed."""


@contextmanager
def naming_lost_ranks() -> Iterator[None]:
    """Raises OtherRankFailed for an error of the connection to another rank."""
    try:
        yield
    except RuntimeError as error:
        # Gloo raises no class of its own; NCCL does.
        if isinstance(error, torch.distributed.DistError) or "gloo/transport" in str(error):
            raise OtherRankFailed(
                "another process of the run has ended; its error says why"
            ) from error
        raise


class Ranks:
    """Communication between ranks: Python objects, such as step tables, which hold the ids of
    actions and what was observed before them; never rows or tensors.

    Raises ConfigError if a launcher started another number of processes than take part: each of
    them would train alone.
    """

    def __init__(self, accelerator: Accelerator | PartialState) -> None:
        self.rank: int = accelerator.process_index
        self.world_size: int = accelerator.num_processes
        started = os.environ.get("WORLD_SIZE", "1")
        if started != str(self.world_size):
            raise ConfigError(
                f"a launcher started {started} processes (WORLD_SIZE), but accelerate lets "
                f"{self.world_size} train together; without a GPU set use_cpu=True"
            )

    def gather(self, values: list[Any]) -> list[Any]:
        """The lists of all ranks, joined in rank order. Every rank must call it."""
        if self.world_size == 1:
            return values
        gathered: list[Any] = gather_object(values)
        return gathered

    def first(self, act: Callable[[], T]) -> T:
        """The result of `act`, which rank 0 alone calls once all have come here; an error of it is
        raised on every rank. The result must be small, as that of `gather`."""
        if self.world_size == 1:
            return act()
        self.gather([None])
        results = self.gather([self.together(lambda: act() if self.rank == 0 else None)])
        first: T = results[0]
        return first

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
                raise OtherRankFailed(f"rank {rank} failed: {problem}")
        return result

    def copy_weights(self, model: nn.Module) -> None:
        """Give the trained weights of `model`, whole on each rank, the values of rank 0."""
        if self.world_size > 1:
            for parameter in model.parameters():
                if parameter.requires_grad:
                    torch.distributed.broadcast(parameter.data, 0)


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
