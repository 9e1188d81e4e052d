"""The processes that train together."""

from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object


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
