"""The tasks of training, by the number of their generation.

Every process draws a generation by its number, so a resumed run, a run that plays ahead and each of
several processes draw the same tasks.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.utils.data

from agentsgym.envs import ConfigError, EnvPool, check_rows
from agentsgym.envs.base import overrides
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.types import session_seed
from agentsgym.types.rows import Floats

_SHOWN = 5
MOST_CHECKED = 100_000
"""Training sets up to this size are checked row by row before training; that takes seconds."""
_SAMPLE = 20_000


def training_tasks(
    dataset: Any,
    args: GRPOEnvConfig,
    shuffle: bool,
    envs: EnvPool,
    kept: Callable[[str], dict[str, Any]],
) -> "TaskSet":
    """The training set, checked before training: a set of at most `MOST_CHECKED` rows completely,
    and one with a curriculum, which reads all rows anyway; of a larger one a sample. `kept` gives
    the dict that checkpoints hold under a name. Raises ConfigError with the first bad rows."""
    size = tasks_per_generation(args)
    seed = args.seed if args.data_seed is None else args.data_seed
    refuse_bad_tasks("train_dataset", dataset, envs, whole=args.curriculum is not None)
    alone = [env.name for env in envs.made if overrides(env, "_run_complete_episode")]
    if args.branches and alone:
        raise ConfigError(
            f"branches={args.branches}: {alone[0]} plays its episodes itself, so it has no branches"
        )
    if args.curriculum is None:
        return TaskSet(dataset, size, seed if shuffle else None)
    return Curriculum(dataset, size, seed, args.curriculum, shuffle, kept)


def refuse_bad_tasks(name: str, dataset: Any, envs: EnvPool, *, whole: bool = False) -> None:
    """Raise ConfigError with the first bad rows; a large set is checked on a sample, unless it is
    to be checked as a `whole`."""
    sample = range(0, len(dataset), -(-len(dataset) // _SAMPLE) or 1)
    whole = whole or len(dataset) <= MOST_CHECKED
    raise_problems(name, check_rows(dataset, envs, None if whole else sample))


def tasks_per_generation(args: GRPOEnvConfig) -> int:
    """Tasks of one generation."""
    return int(args.generation_batch_size) // int(args.num_generations)


class TaskSet:
    """The tasks of a set with numbers, `size` in a generation. The order of an epoch is a function
    of (`seed`, epoch), or that of the rows if `seed` is None; an incomplete last generation is
    dropped.
    """

    def __init__(self, rows: Any, size: int, seed: int | None) -> None:
        self._rows = rows
        self._size = size
        self._seed = seed
        # Generations that follow each other come from the same epoch.
        self._order = lru_cache(maxsize=1)(_permutation)

    def __len__(self) -> int:
        return len(self._rows)

    def other(self, task_data: Mapping[str, Any], number: int) -> Any:
        """The row that is drawn by any `number` in the place of a task without signal."""
        return self._rows[number % len(self)]

    @property
    def generations(self) -> int:
        """Generations of an epoch."""
        return len(self) // self._size

    def generation(self, number: int) -> list[Any]:
        """The rows of generation `number`, counted from 0 over all epochs, each once."""
        epoch, part = divmod(number, self.generations)
        places: Any = range(part * self._size, (part + 1) * self._size)
        if self._seed is not None:
            order = self._order(len(self), self._seed * 1_000_003 + epoch)
            places = order[places.start : places.stop].tolist()
        return [self._rows[place] for place in places]


def _permutation(size: int, seed: int) -> torch.Tensor:
    """A permutation of `range(size)`, shape (size,)."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return order.to(torch.int32) if size <= torch.iinfo(torch.int32).max else order


# -- kinds of tasks --------------------------------------------------------------------------------

EACH_TASK = "task"
"""The value of `curriculum` by which each task is a kind of its own."""
RATE = 0.1
"""Weight of a kind's last group in its signal."""
RATE_OF_TASKS = 0.5
"""Weight of a task's last group in its signal: it has few of them."""
FLOOR = 0.1
"""What each kind's weight has beside its signal, so that none is forgotten, and one that becomes
learnable is noticed."""


_MOST_ORDERS = 1024  # kinds whose order is kept, not made again


def shares(signals: Iterable[float]) -> Floats:
    """The share of tasks of each kind: proportional to `FLOOR` plus its signal. Of K kinds none
    has less than FLOOR / (1 + FLOOR) / K."""
    weights = [signal + FLOOR for signal in signals]
    return np.array(weights) / sum(weights)


def draw(shares: Floats, size: int, rng: np.random.Generator) -> list[int]:
    """Indices of `size` kinds in random order. Each occurs `size` times its share, rounded up or
    down, and exactly that often in the mean: systematic sampling, which has less noise than draws
    that know nothing of each other."""
    ends = shares.cumsum()
    places = (np.arange(size) + rng.random()) / size
    drawn: list[int] = rng.permutation(np.searchsorted(ends / ends[-1], places)).tolist()
    return drawn


class Curriculum(TaskSet):
    """The tasks of a set, of which the values of `task_data[key]` make kinds (with `EACH_TASK` the
    numbers of the rows): more are drawn of the kinds whose groups have signal.

    A kind's signal is the exponential mean over its groups of whether they had signal, 1 before the
    first. A generation is a function of the seed, its number, and the groups of all generations
    that were learned from when it was drawn: all before it, or with `max_staleness` all but as many
    of them. Within a kind the tasks come as in a `TaskSet` of its own, in the order of the rows if
    not `shuffle`.

    What is known is plain data in the dict that `kept` gives, which checkpoints hold. It is equal
    on all ranks, as signals are those of all ranks' groups.
    """

    def __init__(
        self,
        rows: Any,
        size: int,
        seed: int,
        key: str,
        shuffle: bool,
        kept: Callable[[str], dict[str, Any]],
    ) -> None:
        super().__init__(rows, size, seed)
        self._key = key
        self._each = key == EACH_TASK
        self._kept = kept
        self._shuffle = shuffle
        numbers = _rows_of_tasks(rows) if self._each else _rows_of_kinds(rows, key)
        self._kinds = dict(sorted(numbers.items()))
        self._of_kind = lru_cache(maxsize=_MOST_ORDERS)(self._tasks_of)

    @property
    def signals(self) -> dict[str, float]:
        """The signal of each kind."""
        known = self._part("signal")
        return {kind: known.get(kind, 1.0) for kind in self._kinds}

    def generation(self, number: int) -> list[Any]:
        """The rows of generation `number`. It is drawn once; a run that goes on with other kinds or
        another size draws anew what it had not learned from."""
        tasks = self._part("open").get(str(number), ())
        if len(tasks) != self._size or not {kind for kind, _ in tasks} <= self._kinds.keys():
            tasks = self._part("open")[str(number)] = self._draw(number)
        return [self._of_kind(kind).generation(place)[0] for kind, place in tasks]

    def learn(self, number: int, signals: Iterable[bool]) -> dict[str, float]:
        """Take in which groups of generation `number` had signal. Returns figures to log."""
        drawn = [kind for kind, _ in self._part("open").pop(str(number))]
        known, rate = self._part("signal"), RATE_OF_TASKS if self._each else RATE
        for kind, has in zip(drawn, signals, strict=True):
            before = known.get(kind, 1.0)
            known[kind] = before + rate * (float(has) - before)
        if self._each:
            tried = len(known.keys() & self._kinds.keys()) / len(self._kinds)
            mean = sum(self.signals.values()) / len(self._kinds)
            return {"curriculum/tried": tried, "curriculum/signal": mean}
        times = Counter(drawn)
        figures = {f"curriculum/share/{kind}": times[kind] / self._size for kind in self._kinds}
        means = self.signals
        return figures | {f"curriculum/signal/{kind}": means[kind] for kind in means}

    def other(self, task_data: Mapping[str, Any], number: int) -> Any:
        """The row of the same kind that is drawn by any `number` in the place of a task; of any
        kind where each task is one."""
        if self._each:
            return super().other(task_data, number)
        return self._of_kind(str(task_data[self._key])).other(task_data, number)

    def _tasks_of(self, kind: str) -> TaskSet:
        seed = session_seed(self._seed, kind) % 2**32 if self._shuffle else None
        tasks: Any = torch.utils.data.Subset(self._rows, self._kinds[kind])
        return TaskSet(tasks, 1, seed)

    def _draw(self, number: int) -> list[list[Any]]:
        """Each task's kind, and how many of its kind were drawn before."""
        rng = np.random.default_rng(session_seed(self._seed, number))
        drawn, names, tasks = self._part("drawn"), [*self._kinds], []
        for index in draw(shares(self.signals.values()), self._size, rng):
            kind = names[index]
            tasks.append([kind, drawn.get(kind, 0)])
            drawn[kind] = tasks[-1][1] + 1
        return tasks

    def _part(self, name: str) -> dict[str, Any]:
        """Of each kind its "signal" and how many tasks were "drawn"; and the tasks of the
        generations that are "open", which were drawn and not learned from."""
        part: dict[str, Any] = self._kept("curriculum").setdefault(name, {})
        return part


def _rows_of_tasks(rows: Any) -> Mapping[str, Sequence[int]]:
    """Each row as a kind, named by its number."""
    return {str(number): (number,) for number in range(len(rows))}


def _rows_of_kinds(rows: Any, key: str) -> Mapping[str, Sequence[int]]:
    """The numbers of each kind's rows. Raises ConfigError with the first row that has no kind."""
    numbers: dict[str, array[int]] = {}
    for number in range(len(rows)):
        value = rows[number]["task_data"].get(key)
        kind = str(value)
        if not isinstance(value, str | int | float) or not kind.isprintable():
            raise ConfigError(
                f"train_dataset: row {number}: curriculum={key!r} needs a text or a number of this "
                f"name in task_data, as a name in the log; got {value!r}"
            )
        numbers.setdefault(kind, array("q")).append(number)
    return numbers


# -- what can be trained on ------------------------------------------------------------------------


def is_streamed(dataset: Any) -> bool:
    """Whether rows can only be read in sequence."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    return not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"))


def read_training_set(dataset: Any, args: GRPOEnvConfig) -> Any:
    """The rows of the training set; of a stream those that `max_steps` needs, if it has so many.
    Raises ValueError if they cannot be used for training, whatever they contain."""
    if dataset is None:
        raise ValueError("train_dataset is missing: rows of env_class_path, env_config, task_data")
    if isinstance(dataset, Mapping):
        names = ", ".join(map(repr, dataset))
        raise ValueError(f"train_dataset is a dict of {names}; pass one of them")
    check_columns(dataset, "train_dataset")
    size = tasks_per_generation(args)
    if is_streamed(dataset):
        if args.max_steps <= 0:
            raise ValueError("a streamed train_dataset has no length: set max_steps")
        generations = -(-args.max_steps // args.updates_per_generation)
        dataset = list(islice(dataset, generations * size))
    check_number(len(dataset), args)
    return dataset


def check_number(tasks: int, args: GRPOEnvConfig) -> None:
    """Raise ConfigError if there are fewer training tasks than a generation takes."""
    size = tasks_per_generation(args)
    if tasks < size:
        raise ConfigError(
            f"one generation takes {size} tasks (generation_batch_size "
            f"{args.generation_batch_size} / num_generations {args.num_generations}), "
            f"train_dataset has {tasks}; larger groups (num_generations) or a smaller batch need "
            "fewer"
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
