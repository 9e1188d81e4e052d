"""The tasks of training: the order in which they are drawn, large sets, and streams."""

import logging
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import repeat
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Sampler

from agentsgym.envs import ConfigError

logger = logging.getLogger(__name__)


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


class CheckedTasks(Dataset[Any]):
    """The rows of a set with numbers, each checked by `problem` when it is drawn.

    In the place of a bad row, for which `problem` returns a text, stands the next good one, so
    every process finds the same row under a number. More than `most_bad` bad rows raise
    ConfigError.
    """

    def __init__(self, rows: Any, problem: Callable[[Any], str | None], most_bad: int) -> None:
        self._rows = rows
        self._problem = problem
        self._most_bad = most_bad
        self._found: set[int] = set()
        self._last: tuple[int, Any] = (-1, None)

    @property
    def bad(self) -> int:
        """Number of bad rows drawn so far, in this process."""
        return len(self._found)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Any:
        if self._last[0] != number:  # a group draws its row many times, one after another
            self._last = (number, self._good_row(number))
        return self._last[1]

    def _good_row(self, number: int) -> Any:
        for offset in range(len(self)):
            place = (number + offset) % len(self)
            row = self._rows[place]
            problem = self._problem(row)
            if problem is None:
                return row
            self._note(place, problem)
        raise ConfigError("train_dataset: no row is good")

    def _note(self, place: int, problem: str) -> None:
        if place in self._found:
            return
        self._found.add(place)
        text = f"train_dataset: row {place} is bad: {problem}"
        if self.bad > self._most_bad:
            raise ConfigError(f"{text}; that is more than max_bad_rows={self._most_bad}")
        logger.warning("%s; the next good row takes its place", text)


class TaskStream(IterableDataset[Any]):
    """The rows of `source` in the structure of `TaskSampler`, without end: after its last row the
    source is read again (a `datasets.IterableDataset` in a new order).

    The result depends only on the source and the seed, so a resumed run finds its place by
    skipping. Bad rows, for which `problem` returns a text, are skipped; more than `most_bad` in one
    pass raise ConfigError. The rows of an incomplete last batch are dropped in each pass.
    """

    def __init__(
        self,
        source: Any,
        *,
        group_size: int,
        tasks: int,
        repeats: int,
        seed: int,
        shuffle: bool,
        problem: Callable[[Any], str | None],
        most_bad: int,
    ) -> None:
        shuffles = shuffle and hasattr(source, "shuffle")
        self._source = source.shuffle(seed=seed) if shuffles else source
        self._group_size = group_size
        self._tasks = tasks
        self._repeats = repeats
        self._problem = problem
        self._most_bad = most_bad
        self.bad = 0
        """Number of skipped bad rows, in the pass that has most."""
        self.by_number = False
        """Whether a `GenerationReader` gives the rows; iterating then gives empty ones."""

    def __iter__(self) -> Iterator[Any]:
        if self.by_number:
            yield from repeat({})
        for batch in self.generations():
            for _ in range(self._repeats):
                for row in batch:
                    yield from [row] * self._group_size

    def generations(self) -> Iterator[list[Any]]:
        """The rows of each generation."""
        self.bad = 0
        for number in self._passes():
            batch: list[Any] = []
            complete = False
            for row in self._good_rows():
                batch.append(row)
                if len(batch) == self._tasks:
                    yield batch
                    batch, complete = [], True
            if not complete:
                raise ConfigError(
                    f"train_dataset: pass {number + 1} over the stream gave {len(batch)} good "
                    f"rows, a generation takes {self._tasks}"
                )

    def _passes(self) -> Iterator[int]:
        number = 0
        while True:
            if hasattr(self._source, "set_epoch"):
                self._source.set_epoch(number)
            yield number
            number += 1

    def _good_rows(self) -> Iterator[Any]:
        bad = 0
        for number, row in enumerate(self._source):
            problem = self._problem(row)
            if problem is None:
                yield row
                continue
            bad += 1
            if bad > self.bad:
                self._leave_out(f"train_dataset: row {number} of the stream is bad: {problem}", bad)

    def _leave_out(self, text: str, bad: int) -> None:
        """Count a bad row; warn only if this pass has more bad rows than any pass before."""
        if bad > self._most_bad:
            raise ConfigError(f"{text}; that is more than max_bad_rows={self._most_bad}")
        self.bad = bad
        logger.warning("%s; it is skipped", text)


class GenerationReader:
    """The generations of a stream by their numbers. It reads on from the last one, and for an
    earlier one again from the beginning."""

    def __init__(self, stream: TaskStream) -> None:
        self._stream = stream
        self._generations = stream.generations()
        self._number = -1
        self._rows: list[Any] = []

    def rows(self, number: int) -> list[Any]:
        """The rows of generation `number`, counted from 0. Raises ConfigError for a bad stream."""
        if number < self._number:
            self._generations, self._number = self._stream.generations(), -1
        while self._number < number:
            self._rows = next(self._generations)
            self._number += 1
        return self._rows
