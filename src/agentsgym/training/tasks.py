"""The tasks of training, by the number of their generation.

Every process draws a generation by its number, so a resumed run, a run that plays ahead and each of
several processes draw the same tasks.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import count, islice
from typing import Any

import torch
import torch.utils.data

from agentsgym.envs import ConfigError, EnvPool, check_rows
from agentsgym.envs.dataset import row_problem
from agentsgym.training.config import GRPOEnvConfig

logger = logging.getLogger(__name__)

_SHOWN = 5
MOST_CHECKED = 100_000
"""Training sets up to this size are checked row by row before training; that takes seconds."""
_SAMPLE = 20_000


def training_tasks(dataset: Any, args: GRPOEnvConfig, shuffle: bool, envs: EnvPool) -> "Tasks":
    """The training set, checked as far as can be done before training: a set of at most
    `MOST_CHECKED` rows completely, of a larger one a sample. Every row is checked when it is drawn.
    Raises ConfigError with the first bad rows."""
    size = tasks_per_generation(args)
    seed = args.seed if args.data_seed is None else args.data_seed
    bad = BadRows(lambda row: row_problem(row, envs), args.max_bad_rows)
    if is_streamed(dataset):
        shuffles = shuffle and hasattr(dataset, "shuffle")
        return TaskStream(dataset.shuffle(seed=seed) if shuffles else dataset, size, bad)
    sample = range(0, len(dataset), -(-len(dataset) // _SAMPLE))
    raise_problems(
        "train_dataset", check_rows(dataset, envs, sample if len(dataset) > MOST_CHECKED else None)
    )
    return TaskSet(dataset, size, seed if shuffle else None, bad)


def tasks_per_generation(args: GRPOEnvConfig) -> int:
    """Tasks of one generation."""
    return int(args.generation_batch_size) // int(args.num_generations)


class BadRows:
    """Bad rows, for which `problem` returns a text, are left out with a warning; more than `most`
    raise ConfigError. Of a stream, as many in one pass."""

    def __init__(self, problem: Callable[[Any], str | None], most: int) -> None:
        self._problem = problem
        self._most = most
        self._numbers: set[int] = set()
        self.count = 0
        """Number of bad rows drawn so far, in this process; of a stream, in the pass that has
        most."""

    def begin_pass(self) -> None:
        """A stream is read again, maybe in another order."""
        self._numbers.clear()

    def leaves_out(self, row: Any, number: int) -> bool:
        """Whether this row, which has this number, is bad."""
        problem = self._problem(row)
        if problem is None:
            return False
        self._numbers.add(number)
        if len(self._numbers) > self.count:  # so a row is warned of only once
            self.count = len(self._numbers)
            text = f"train_dataset: row {number} is bad: {problem}"
            if self.count > self._most:
                raise ConfigError(f"{text}; that is more than max_bad_rows={self._most}")
            logger.warning("%s; the next good row takes its place", text)
        return True


class TaskSet:
    """The tasks of a set with numbers, `size` in a generation. The order of an epoch is a function
    of (`seed`, epoch), or that of the rows if `seed` is None; an incomplete last generation is
    dropped. In the place of a bad row stands the next good one, so every process has the same row
    there.
    """

    def __init__(self, rows: Any, size: int, seed: int | None, bad: BadRows) -> None:
        self._rows = rows
        self._size = size
        self._seed = seed
        self.bad = bad
        # Generations that follow each other come from the same epoch.
        self._order = lru_cache(maxsize=1)(_permutation)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Any:
        for offset in range(len(self)):
            place = (number + offset) % len(self)
            row = self._rows[place]
            if not self.bad.leaves_out(row, place):
                return row
        raise ConfigError("train_dataset: no row is good")

    def generations(self, args: GRPOEnvConfig) -> int:
        """Generations of an epoch."""
        return len(self) // self._size

    def generation(self, number: int) -> list[Any]:
        """The rows of generation `number`, counted from 0 over all epochs, each once."""
        epoch, part = divmod(number, len(self) // self._size)
        places: Any = range(part * self._size, (part + 1) * self._size)
        if self._seed is not None:
            order = self._order(len(self), self._seed * 1_000_003 + epoch)
            places = order[places.start : places.stop].tolist()
        return [self[place] for place in places]


def _permutation(size: int, seed: int) -> torch.Tensor:
    """A permutation of `range(size)`, shape (size,)."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return order.to(torch.int32) if size <= torch.iinfo(torch.int32).max else order


class TaskStream:
    """The tasks of `source`, `size` in a generation, without end: after its last row the source is
    read again (a `datasets.IterableDataset` in a new order).

    The result depends only on the source. Bad rows are skipped. The rows of an incomplete last
    generation are dropped in each pass.
    """

    def __init__(self, source: Any, size: int, bad: BadRows) -> None:
        self._source = source
        self._size = size
        self.bad = bad
        self._generations = self._read()
        self._number = -1
        self._rows: list[Any] = []

    def generations(self, args: GRPOEnvConfig) -> int:
        """Generations of the whole training, as a stream has no epochs."""
        return -(-int(args.max_steps) // args.updates_per_generation)

    def generation(self, number: int) -> list[Any]:
        """The rows of generation `number`. Reading goes on from the last one, and for an earlier
        one begins again."""
        if number < self._number:
            self._generations, self._number = self._read(), -1
        while self._number < number:
            self._rows = next(self._generations)
            self._number += 1
        return self._rows

    def _read(self) -> Iterator[list[Any]]:
        """The rows of each generation."""
        for number in count():
            if hasattr(self._source, "set_epoch"):
                self._source.set_epoch(number)
            rows, complete = self._good_rows(), False
            while len(batch := list(islice(rows, self._size))) == self._size:
                complete = True
                yield batch
            if not complete:
                raise ConfigError(
                    f"train_dataset: pass {number + 1} over the stream gave {len(batch)} good "
                    f"rows, a generation takes {self._size}"
                )

    def _good_rows(self) -> Iterator[Any]:
        self.bad.begin_pass()
        for number, row in enumerate(self._source):
            if not self.bad.leaves_out(row, number):
                yield row


Tasks = TaskSet | TaskStream


# -- what can be trained on ------------------------------------------------------------------------


def is_streamed(dataset: Any) -> bool:
    """Whether rows can only be read in sequence."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    return not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"))


def check_training_set(dataset: Any, args: GRPOEnvConfig) -> None:
    """Raise ValueError if the dataset cannot be used for training, whatever its rows contain."""
    if dataset is None:
        raise ValueError("train_dataset is missing: rows of env_class_path, env_config, task_data")
    if isinstance(dataset, Mapping):
        names = ", ".join(map(repr, dataset))
        raise ValueError(f"train_dataset is a dict of {names}; pass one of them")
    check_columns(dataset, "train_dataset")
    if is_streamed(dataset):
        if args.max_steps <= 0:
            raise ValueError("a streamed train_dataset has no length: set max_steps")
        if args.zero_signal_groups == "resample":
            raise ValueError(
                "zero_signal_groups='resample' draws tasks by number, which a stream has not"
            )
    elif len(dataset) < tasks_per_generation(args):
        raise ValueError(
            f"one generation takes {tasks_per_generation(args)} tasks (generation_batch_size "
            f"{args.generation_batch_size} / num_generations {args.num_generations}), "
            f"train_dataset has {len(dataset)}"
        )


def raise_problems(name: str, problems: list[str]) -> None:
    """Raise ConfigError with the first problems of a dataset, if it has any."""
    if problems:
        more = f"; and {len(problems) - _SHOWN} more faults" if len(problems) > _SHOWN else ""
        raise ConfigError(f"{name}: {'; '.join(problems[:_SHOWN])}{more}")


def check_columns(dataset: Any, name: str) -> None:
    """Raise ValueError if a dataset with columns lacks one of a row's."""
    columns = getattr(dataset, "column_names", None)
    missing = {"env_class_path", "env_config", "task_data"} - set(columns or [])
    if columns and missing:
        raise ValueError(f"{name} has no column {sorted(missing)[0]!r}; it has {columns}")
