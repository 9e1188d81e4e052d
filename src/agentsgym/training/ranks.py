"""The processes that train together."""

from collections.abc import Callable
from typing import Any, TypeVar

from accelerate import Accelerator
from accelerate.utils import gather_object

T = TypeVar("T")


class Ranks:
    """What ranks tell each other: small Python objects (step tables, counts), never tokens."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.index: int = accelerator.process_index
        self.number: int = accelerator.num_processes

    def gather(self, values: list[Any]) -> list[Any]:
        """The lists of all ranks, joined in the order of ranks. Every rank must call it."""
        if self.number == 1:
            return values
        gathered: list[Any] = gather_object(values)
        return gathered

    def slice(self, size: int) -> slice:
        """Where this rank's `size` items stand among those of all ranks."""
        return slice(self.index * size, (self.index + 1) * size)

    def together(self, act: Callable[[], T]) -> T:
        """What `act` returns here. Where it raises on one rank every rank raises, so that none is
        left waiting for the others; all ranks must call."""
        if self.number == 1:
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
