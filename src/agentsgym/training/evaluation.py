"""An evaluation during training: its tasks are played; the metric that selects the best model."""

import math
import time
from collections.abc import Mapping
from typing import Any

from agentsgym.training.tasks import chosen_sets


def evaluate_sets(trainer: Any, dataset: Any, prefix: str) -> dict[str, float]:
    """Play the chosen evaluation tasks with the current weights of a `GRPOEnvTrainer`; return and
    log their metrics."""
    data = chosen_sets(dataset, trainer.eval_dataset, trainer.collector.envs)
    if not isinstance(data, Mapping):
        return _evaluate(trainer, data, prefix)
    metrics: dict[str, float] = {}
    for name, tasks in data.items():
        metrics |= _evaluate(trainer, tasks, f"{prefix}_{name}", name)
    return metrics


def _evaluate(trainer: Any, tasks: Any, prefix: str, name: str = "") -> dict[str, float]:
    started = time.perf_counter()
    training = trainer.model.training
    trainer.model.eval()
    step, requests = trainer.state.global_step, trainer.collector.eval_requests(tasks)
    rollouts = trainer.play_evaluation(requests, step)
    trainer.failures.tell(rollouts, "eval", step)
    values = trainer.reports.figures(rollouts)
    metrics = {f"{prefix}_{key}": value for key, value in values.items()}
    metrics = with_metric(trainer.args, metrics, prefix)
    metrics[f"{prefix}_runtime"] = time.perf_counter() - started
    trainer.reports.hand_over(rollouts, "eval", dataset=name)
    trainer.log(dict(metrics))
    trainer.model.train(training)
    trainer.evaluated(metrics)
    return metrics


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
