"""pass@k and pass^k: how often one of k rollouts of a task is won, and how often all are."""

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from agentsgym.evaluation.evaluate import cluster_of
from agentsgym.evaluation.intervals import Interval, rate_interval
from agentsgym.evaluation.metrics import mean, record, reported_wins
from agentsgym.types import Rollout


class Passes(BaseModel):
    """How often one of k rollouts of a task is won, and how often all are: `any` is pass@k and
    `all` pass^k, each with its 95 % interval over clusters of tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k: int
    any: float
    any_ci95: Interval
    all: float
    all_ci95: Interval


def pass_any(wins: int, played: int, k: int) -> float:
    """pass@k of one task: 1 − C(n − c, k)/C(n, k) for c wins in n rollouts, unbiased (Chen et al.,
    2021)."""
    return 1.0 - math.comb(played - wins, k) / math.comb(played, k)


def pass_all(wins: int, played: int, k: int) -> float:
    """pass^k of one task: C(c, k)/C(n, k), unbiased (Yao et al., 2024)."""
    return math.comb(wins, k) / math.comb(played, k)


def passes(rollouts: Sequence[Rollout]) -> list[Passes]:
    """pass@k and pass^k for k = 2, 4, 8, … up to the rollouts of a task.

    A rollout counts as won if all its scored episodes were won; failed rollouts do not count. Tasks
    with fewer than k live rollouts are left out. Empty without wins or with one rollout per task.
    """
    tasks = _tasks(rollouts)
    most = max((played for _, played, _ in tasks), default=0)
    return [_passes(tasks, 2**power) for power in range(1, most.bit_length())]


Task = tuple[int, int, tuple[str, str]]
"""Won rollouts, live rollouts, and the task's cluster."""


def _tasks(rollouts: Sequence[Rollout]) -> list[Task]:
    tasks: dict[int, Task] = {}
    for rollout, win in zip(rollouts, reported_wins([record(r) for r in rollouts]), strict=True):
        if win is not None:
            wins, played, key = tasks.get(rollout.group, (0, 0, cluster_of(rollout)))
            tasks[rollout.group] = wins + (win == 1.0), played + 1, key
    return list(tasks.values())


def _passes(tasks: Sequence[Task], k: int) -> Passes:
    enough = [task for task in tasks if task[1] >= k]
    keys = [key for _, _, key in enough]
    some = [pass_any(wins, played, k) for wins, played, _ in enough]
    every = [pass_all(wins, played, k) for wins, played, _ in enough]
    return Passes(
        k=k,
        any=mean(some),
        any_ci95=rate_interval(some, keys),
        all=mean(every),
        all_ci95=rate_interval(every, keys),
    )
