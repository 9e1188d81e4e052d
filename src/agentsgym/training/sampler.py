"""The order in which training tasks are drawn."""

from collections.abc import Callable, Iterator

import torch
from torch.utils.data import Sampler


class TaskSampler(Sampler[int]):
    """Indices of the dataset in the structure that TRL's generation batches need.

    Each group's index stands `group_size` times in a row; `tasks` groups make a generation batch,
    which is repeated `repeats` times (once per micro-batch that it feeds). The permutation is a
    function of (`seed`, `epoch()`), so that a resumed run draws the tasks it would have drawn;
    TRL's own sampler starts again from its seed. An incomplete last batch is left out.
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
        order = list(range(self._size))
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch())
            order = torch.randperm(self._size, generator=generator).tolist()
        for start in range(0, self._size - self._tasks + 1, self._tasks):
            for _ in range(self._repeats):
                for index in order[start : start + self._tasks]:
                    yield from [index] * self._group_size

    def __len__(self) -> int:
        return (self._size // self._tasks) * self._tasks * self._group_size * self._repeats
