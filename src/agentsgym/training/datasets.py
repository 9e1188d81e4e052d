"""Training and evaluation sets in all forms that TRL accepts, and their checks."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import torch.utils.data

from agentsgym.envs import ConfigError, EnvPool, check_rows
from agentsgym.envs.dataset import row_problem
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.tasks import CheckedTasks, TaskStream
from agentsgym.types import RolloutRequest

# Evaluation sets are kept in memory; an endless one must not fill it.
_MOST_STREAMED = 10_000
_SHOWN = 5
MOST_CHECKED = 100_000
"""Training sets up to this size are checked row by row before training; that takes seconds."""
_SAMPLE = 20_000


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
    _check_columns(dataset, "train_dataset")
    if is_streamed(dataset):
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


def checked_tasks(dataset: Any, args: GRPOEnvConfig, shuffle: bool, envs: EnvPool) -> Any:
    """The training set, checked as far as can be done before training: a set of at most
    `MOST_CHECKED` rows completely; of a larger one a sample, and each row when it is drawn; of a
    streamed one each row when it is drawn. Raises ConfigError with the first bad rows."""

    def problem(row: Any) -> str | None:
        return row_problem(row, envs)

    if is_streamed(dataset):
        return TaskStream(
            dataset,
            group_size=args.num_generations,
            tasks=tasks_per_generation(args),
            repeats=args.num_iterations * args.steps_per_generation,
            seed=args.seed if args.data_seed is None else args.data_seed,
            shuffle=shuffle,
            problem=problem,
            most_bad=args.max_bad_rows,
        )
    if len(dataset) <= MOST_CHECKED:
        refuse_bad_rows("train_dataset", dataset, envs)
        return dataset
    _refuse("train_dataset", check_rows(dataset, envs, _spread(len(dataset))))
    return CheckedTasks(dataset, problem, args.max_bad_rows)


def _spread(size: int) -> range:
    """Numbers of at most `_SAMPLE` rows, evenly over all rows."""
    return range(0, size, -(-size // _SAMPLE))


def evaluation_sets(dataset: Any) -> Any:
    """The evaluation set for `evaluate`: rows with a length, or a dict of such sets by name. A
    streamed set is read here, once."""
    if dataset is None:
        return None
    if isinstance(dataset, Mapping):
        if not dataset:
            raise ValueError("the dict of evaluation sets is empty")
        return {str(name): _rows(part, f"eval_dataset[{name!r}]") for name, part in dataset.items()}
    return _rows(dataset, "eval_dataset")


def chosen_sets(given: Any, own: Any, envs: EnvPool) -> Any:
    """The set that `evaluate` plays: the trainer's `own` sets, one of them by its name, or others.
    Raises ValueError if there is none."""
    if given is None:
        if own is None:
            raise ValueError("there is no eval_dataset; pass one: trainer.evaluate(tasks)")
        return own
    if isinstance(given, str):
        if not isinstance(own, Mapping) or given not in own:
            raise ValueError(f"the trainer has no evaluation set {given!r}")
        return {given: own[given]}
    sets = evaluation_sets(given)
    refuse_bad_rows("eval_dataset", sets, envs)
    return sets


def refuse_bad_rows(name: str, dataset: Any, envs: EnvPool) -> None:
    """Raise ConfigError with the first rows that have each fault; the rows of a streamed set are
    checked when they are drawn."""
    if isinstance(dataset, Mapping):
        for part, rows in dataset.items():
            refuse_bad_rows(f"{name}[{part!r}]", rows, envs)
    elif dataset is not None and not is_streamed(dataset) and not _are_requests(dataset):
        _refuse(name, check_rows(dataset, envs))


def _are_requests(dataset: Any) -> bool:
    """Whether a set says, beside its tasks, with which noise they are played."""
    return len(dataset) > 0 and isinstance(dataset[0], RolloutRequest)


def _refuse(name: str, problems: list[str]) -> None:
    if problems:
        more = f"; and {len(problems) - _SHOWN} more faults" if len(problems) > _SHOWN else ""
        raise ConfigError(f"{name}: {'; '.join(problems[:_SHOWN])}{more}")


def _rows(dataset: Any, name: str) -> Any:
    rows = _read(dataset, name) if is_streamed(dataset) else dataset
    if isinstance(rows, str) or len(rows) == 0:
        raise ValueError(f"{name} holds no tasks")
    _check_columns(rows, name)
    return rows


def _read(dataset: Any, name: str) -> list[Any]:
    if not isinstance(dataset, Iterable):
        raise ValueError(f"{name} must be a dataset, or a dict of them, got {type(dataset)}")
    rows = list(islice(dataset, _MOST_STREAMED + 1))
    if len(rows) > _MOST_STREAMED:
        raise ValueError(
            f"{name} is streamed and has more than {_MOST_STREAMED} rows; an evaluation plays all "
            "of its tasks, so pass only as many as it should play (dataset.take(100))"
        )
    return rows


def _check_columns(dataset: Any, name: str) -> None:
    columns = getattr(dataset, "column_names", None)
    missing = {"env_class_path", "env_config", "task_data"} - set(columns or [])
    if columns and missing:
        raise ValueError(f"{name} has no column {sorted(missing)[0]!r}; it has {columns}")


def tasks_per_generation(args: GRPOEnvConfig) -> int:
    """Tasks of one generation."""
    return int(args.generation_batch_size) // int(args.num_generations)
