"""Evaluation in training: its tasks, and the metric that selects the best model."""

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from agentsgym.envs import EnvPool, check_rows
from agentsgym.training.tasks import check_columns, is_streamed, raise_problems
from agentsgym.types import RolloutRequest

# Evaluation sets are kept in memory; an endless one must not fill it.
_MOST_STREAMED = 10_000


# -- its tasks -------------------------------------------------------------------------------------


def read_sets(dataset: Any) -> Any:
    """The evaluation set for `evaluate`: rows with a length, or a dict of such sets by name. A
    streamed set is read here, once."""
    if dataset is None:
        return None
    if isinstance(dataset, Mapping):
        if not dataset:
            raise ValueError("the dict of evaluation sets is empty")
        return {str(name): _rows(part, f"eval_dataset[{name!r}]") for name, part in dataset.items()}
    return _rows(dataset, "eval_dataset")


def chosen_sets(choice: Any, own: Any, envs: EnvPool) -> Any:
    """The set that `evaluate` plays: the trainer's `own` sets, one of them by its name, or others.
    Raises ValueError if there is none."""
    if choice is None:
        if own is None:
            raise ValueError("there is no eval_dataset; pass one: trainer.evaluate(tasks)")
        return own
    if isinstance(choice, str):
        if not isinstance(own, Mapping) or choice not in own:
            raise ValueError(f"the trainer has no evaluation set {choice!r}")
        return {choice: own[choice]}
    sets = read_sets(choice)
    refuse_bad_rows("eval_dataset", sets, envs)
    return sets


def refuse_bad_rows(name: str, dataset: Any, envs: EnvPool) -> None:
    """Raise ConfigError with the first rows that have each fault."""
    if isinstance(dataset, Mapping):
        for part, rows in dataset.items():
            refuse_bad_rows(f"{name}[{part!r}]", rows, envs)
    elif dataset is not None and not isinstance(dataset[0], RolloutRequest):
        raise_problems(name, check_rows(dataset, envs))


def _rows(dataset: Any, name: str) -> Any:
    streamed = is_streamed(dataset)
    if streamed and not isinstance(dataset, Iterable):
        raise ValueError(f"{name} must be a dataset, or a dict of them, got {type(dataset)}")
    rows = list(islice(dataset, _MOST_STREAMED + 1)) if streamed else dataset
    if streamed and len(rows) > _MOST_STREAMED:
        raise ValueError(
            f"{name} is streamed and has more than {_MOST_STREAMED} rows; an evaluation plays all "
            "of its tasks, so pass only as many as it should play (dataset.take(100))"
        )
    if isinstance(rows, str) or len(rows) == 0:
        raise ValueError(f"{name} holds no tasks")
    check_columns(rows, name)
    return rows


# -- the metric that selects the best model --------------------------------------------------------


def check_metric(args: Any, eval_dataset: Any) -> None:
    """Raise ValueError if there are several evaluation sets and the metric does not belong to one
    of them."""
    metric = args.metric_for_best_model
    if metric is None or not isinstance(eval_dataset, Mapping):
        return
    plain = metric.removeprefix("eval_")
    if not any(plain.startswith(f"{name}_") for name in eval_dataset):
        first = next(iter(eval_dataset), "name")
        raise ValueError(
            f"metric_for_best_model={metric!r} must say which evaluation set decides: there are "
            f"{', '.join(map(repr, eval_dataset))}, so for instance '{first}_reward'"
        )


def with_metric(args: Any, metrics: dict[str, float], prefix: str) -> dict[str, float]:
    """`metrics`, in which the deciding one is NaN if every rollout failed and its value is unknown:
    then the best model does not change."""
    name = f"eval_{(args.metric_for_best_model or '').removeprefix('eval_')}"
    if metrics.get(f"{prefix}_failed") != 1.0 or not name.startswith(f"{prefix}_"):
        return metrics
    return {name: math.nan} | metrics
