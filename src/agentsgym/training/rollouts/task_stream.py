"""A training set that is read row by row."""

import logging
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from torch.utils.data import IterableDataset

from agentsgym.envs import ConfigError

logger = logging.getLogger(__name__)


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
