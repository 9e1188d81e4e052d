"""The order in which training tasks are drawn."""

from collections.abc import Callable, Iterator
from functools import lru_cache

import torch
from torch.utils.data import Sampler


class TaskSampler(Sampler[int]):
    """Indices of the dataset in the structure that TRL's generation batches need.

    Each group's index is repeated `group_size` times in a row; `tasks` groups make a generation
    batch, which is repeated `repeats` times (once per micro-batch that uses it). The permutation is
    a function of (`seed`, `epoch()`), so a resumed run draws the same tasks; TRL's own sampler
    would start again from its seed. An incomplete last batch is dropped.

    A generation costs time and memory in proportion to its own size; the permutation of an epoch is
    an array of four bytes per row.
    """

    def __init__(
        self,
        size: int,
        *,
        group_size: int,
        tasks: int,
        repeats: int,
        seed: int,
        epoch: Callable[[], int],
        shuffle: bool = True,
    ) -> None:
        self._size = size
        self._group_size = group_size
        self._tasks = tasks
        self._repeats = repeats
        self._seed = seed
        self._epoch = epoch
        self._shuffle = shuffle

    def __iter__(self) -> Iterator[int]:
        order = self._order(self._epoch())
        for number in range(self._size // self._tasks):
            batch = self._batch(order, number)
            for _ in range(self._repeats):
                yield from batch

    def generation(self, number: int) -> list[int]:
        """The indices of generation `number`, counted from 0 over all epochs."""
        epoch, batch = divmod(number, self._size // self._tasks)
        return self._batch(self._order(epoch), batch)

    def _order(self, epoch: int) -> torch.Tensor | range:
        """The tasks of an epoch, in the order in which they are drawn."""
        if not self._shuffle:
            return range(self._size)
        return _permutation(self._size, self._seed * 1_000_003 + epoch)

    def _batch(self, order: torch.Tensor | range, number: int) -> list[int]:
        """The indices of one generation, every task `group_size` times."""
        start = number * self._tasks
        drawn = order[start : start + self._tasks]
        tasks = drawn if isinstance(drawn, range) else drawn.tolist()
        return [task for task in tasks for _ in range(self._group_size)]

    def __len__(self) -> int:
        return (self._size // self._tasks) * self._tasks * self._group_size * self._repeats


@lru_cache(maxsize=1)  # a prefetched generation comes from the same epoch as the one before
def _permutation(size: int, seed: int) -> torch.Tensor:
    """A permutation of `range(size)`, shape (size,)."""
    drawn = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return drawn.to(torch.int32) if size <= torch.iinfo(torch.int32).max else drawn
