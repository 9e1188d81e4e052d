"""The order in which training tasks are drawn."""

from collections.abc import Callable, Iterator

import torch
from torch.utils.data import Sampler


class TaskSampler(Sampler[int]):
    """Indices of the dataset in the structure that TRL's generation batches need.

    Each group's index is repeated `group_size` times in a row; `tasks` groups make a generation
    batch, which is repeated `repeats` times (once per micro-batch that uses it). The permutation is
    a function of (`seed`, `epoch()`), so a resumed run draws the same tasks; TRL's own sampler
    would start again from its seed. An incomplete last batch is dropped.
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
        for batch in self._batches(self._epoch()):
            for _ in range(self._repeats):
                yield from batch

    def generation(self, number: int) -> list[int]:
        """The indices of generation `number`, counted from 0 over all epochs."""
        epoch, batch = divmod(number, self._size // self._tasks)
        return self._batches(epoch)[batch]

    def _batches(self, epoch: int) -> list[list[int]]:
        """The indices of each generation of an epoch, every task `group_size` times."""
        order = list(range(self._size))
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            order = torch.randperm(self._size, generator=generator).tolist()
        starts = range(0, self._size - self._tasks + 1, self._tasks)
        groups = [order[start : start + self._tasks] for start in starts]
        return [[i for i in group for _ in range(self._group_size)] for group in groups]

    def __len__(self) -> int:
        return (self._size // self._tasks) * self._tasks * self._group_size * self._repeats
