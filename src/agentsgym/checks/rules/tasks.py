"""The check that training and evaluation tasks exist, are well formed, and are disjoint."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentsgym.checks.context import Context
from agentsgym.checks.report import Finding
from agentsgym.envs.dataset import check_row

_NAME = "tasks"


def tasks(context: Context) -> Finding:
    """Both datasets exist, their rows name this environment, and no task is in both.

    An environment with a single task is accepted: both datasets then contain that task.
    """
    train, held_out = context.train, context.held_out
    if train is None or held_out is None:
        missing = "get_train_dataset" if train is None else "get_eval_dataset"
        if context.given:
            return Finding(_NAME, True, f"{len(context.given)} given; {missing} is not defined")
        return Finding(_NAME, False, f"{missing} is not defined")
    problem = _row_problem(context)
    if problem:
        return Finding(_NAME, False, problem)
    return _overlap(train, held_out)


def _overlap(train: Sequence[Mapping[str, Any]], held_out: Sequence[Mapping[str, Any]]) -> Finding:
    if not train or not held_out:
        empty = "training" if not train else "evaluation"
        return Finding(_NAME, False, f"there are no {empty} tasks")
    first, second = _keys(train), _keys(held_out)
    both = first & second
    if len(first) == 1 and first == second:
        return Finding(_NAME, True, "one task: every seed gives the same one")
    if both:
        example = min(both)
        text = f"{len(both)} of {len(second)} evaluation tasks are training tasks: {example[:100]}"
        return Finding(_NAME, False, text)
    repeated = len(train) - len(first)
    warnings = (f"{repeated} training tasks are duplicates",) if repeated else ()
    return Finding(
        _NAME,
        True,
        f"{len(train)} training tasks, {len(held_out)} other evaluation tasks",
        warnings,
    )


def _keys(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {json.dumps(row, sort_keys=True, default=repr) for row in rows}


def _row_problem(context: Context) -> str | None:
    """The first problem in the datasets' first rows."""
    env = context.env
    for dataset in (env.get_train_dataset(), env.get_eval_dataset()):
        for number, row in enumerate(dataset.select(range(min(4, len(dataset))))):
            try:
                checked = check_row(row, number)
            except ValueError as error:
                return str(error)
            if checked["env_class_path"] != env.class_path:
                return f"row {number} names {checked['env_class_path']!r}, not {env.class_path!r}"
            if checked["env_config"] != env.env_config:
                return f"row {number} has a different env_config than the environment"
    return None
