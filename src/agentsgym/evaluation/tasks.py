"""Selects the tasks that an evaluation plays, and groups them into clusters."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentsgym.envs.dataset import check_row
from agentsgym.types import RolloutRequest, session_seed
from agentsgym.types.records import Ints
from agentsgym.types.text import short_repr

Cluster = Callable[[Mapping[str, Any]], str]

_MOST_SEEN = 100_000
_SEEN_OF_LARGE = 10_000


def default_cluster(task_data: Mapping[str, Any]) -> str:
    """Tasks with the same `solution` are one cluster; without a solution, equal tasks are.

    Tasks that cannot be written as JSON (too deep, or recursive) are one cluster too.
    """
    key = task_data.get("solution", task_data)
    if isinstance(key, str):
        return key
    try:
        return json.dumps(key, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return "what cannot be written"


def select(
    rows: Sequence[Mapping[str, Any]], count: int, *, seed: int = 0, cluster: Cluster
) -> list[int]:
    """Indices of `count` rows, drawn without replacement and spread evenly over the clusters.

    Every cluster is drawn once before any is drawn a second time. If there are no more than
    `count` rows, all are returned in their order. Of more than 100,000 rows, 10,000 or `count` that
    are drawn at random are looked at.
    """
    size = len(rows)
    if size <= count:
        return list(range(size))
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index in _drawn(size, count, np.random.default_rng(seed)).tolist():
        row = check_row(rows[index], index)
        members[row["env_class_path"], cluster(row["task_data"])].append(index)
    rounds = [
        (turn, position, index)
        for position, indices in enumerate(members.values())
        for turn, index in enumerate(indices)
    ]
    return sorted(index for _, _, index in sorted(rounds)[:count])


def _drawn(size: int, count: int, rng: np.random.Generator) -> Ints:
    """The rows that `select` looks at, in the order in which it does."""
    if size <= _MOST_SEEN:
        return rng.permutation(size)
    return rng.choice(size, min(size, max(_SEEN_OF_LARGE, count)), replace=False)


def rollout_requests(
    rows: Sequence[Mapping[str, Any]],
    episodes: int,
    *,
    rollouts_per_task: int = 1,
    seed: int = 0,
    cluster: Cluster = default_cluster,
    max_rollout_tokens: int | None = None,
) -> list[RolloutRequest]:
    """Requests for `episodes` rollouts over the rows, task by task.

    Each chosen task is played `rollouts_per_task` times, or more often if there are too few rows.
    The noise of a rollout depends only on (`seed`, its row's number, its number), so two agents
    play the same tasks with the same noise.
    """
    for name, value in (("episodes", episodes), ("rollouts_per_task", rollouts_per_task)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if isinstance(rows, Mapping | str) or not hasattr(rows, "__getitem__"):
        raise ValueError(
            f"rows must be a list or dataset of rows, got {short_repr(rows, 200)}"
            + ("; pass one of its values" if isinstance(rows, Mapping) else "")
        )
    if not len(rows):
        raise ValueError("there are no tasks to evaluate on")
    chosen = select(rows, -(-episodes // rollouts_per_task), seed=seed, cluster=cluster)
    base, more = divmod(episodes, len(chosen))
    checked = [check_row(rows[number], number) for number in chosen]
    return [
        RolloutRequest.of(
            checked[group],
            group,
            index,
            session_seed(seed, "evaluation", number, index),
            max_rollout_tokens=max_rollout_tokens,
        )
        for group, number in enumerate(chosen)
        for index in range(base + (group < more))
    ]
