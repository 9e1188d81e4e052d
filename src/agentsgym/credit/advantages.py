"""From rollouts to one advantage per token: the public entry of credit assignment."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentsgym.credit.estimators.episodic import grpo, rloo
from agentsgym.credit.estimators.gigpo import gigpo
from agentsgym.credit.estimators.step_return import step_return
from agentsgym.credit.estimators.trial import trial
from agentsgym.credit.options import check_numbers
from agentsgym.credit.table import Floats, StepTable, table_of
from agentsgym.types import (
    AllowImports,
    ImportRefused,
    Rollout,
    RolloutBatch,
    Row,
    import_path,
)

Estimator = Callable[..., Floats]

ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": grpo,
    "rloo": rloo,
    "step_return": step_return,
    "gigpo": gigpo,
    "trial": trial,
}
"""Estimators of steps, by name. "reward" is none: it takes the placed per-token rewards."""


def advantages(
    batch: RolloutBatch,
    estimator: str = "grpo",
    *,
    allow_imports: AllowImports = False,
    **options: Any,
) -> list[Floats]:
    """Advantages of every row of `batch.rows`: float64, as long as the row, 0 off agent tokens.

    `estimator` is a name in `ESTIMATORS`, "reward", or the dotted path of a function from a
    `StepTable` to one float per step, which is imported only where `allow_imports` allows it.
    Raises ValueError for an unknown estimator, an option it does not take, a reward that is not
    finite, or a custom estimator's result of the wrong shape.
    """
    check_estimator(estimator, options, allow_imports)
    if estimator == "reward":
        return [placed_rewards(row) for row in batch.rows]
    table = table_of(batch.rollouts)
    per_step = step_advantages(table, estimator, allow_imports=allow_imports, **options)
    return spread(batch.rollouts, per_step)


def step_advantages(
    table: StepTable, estimator: str, *, allow_imports: AllowImports = False, **options: Any
) -> Floats:
    """One number per step of the table, shape (N,), for any estimator but "reward"."""
    result = np.asarray(find_estimator(estimator, allow_imports)(table, **options), np.float64)
    if result.shape != table.reward.shape or not np.isfinite(result).all():
        raise ValueError(
            f"estimator {estimator!r} must give {len(table.reward)} finite numbers, one per "
            f"step; it gave shape {result.shape}"
        )
    return result


def find_estimator(name: str, allow_imports: AllowImports = False) -> Estimator:
    """The estimator of that name or dotted path. Raises ValueError where there is none."""
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    known = ", ".join(sorted([*ESTIMATORS, "reward"]))
    if "." not in name:
        raise ValueError(f"unknown advantage estimator {name!r}; known: {known}")
    try:
        ours = name.startswith("agentsgym.credit.")
        found = import_path(name, ours or allow_imports)
    except ImportRefused as error:
        raise ValueError(f"advantage estimator {name!r}: {error}") from error
    if not callable(found):
        raise ValueError(f"advantage estimator {name!r} is no function")
    estimator: Estimator = found
    return estimator


def check_estimator(
    name: str, options: Mapping[str, Any], allow_imports: AllowImports = False
) -> None:
    """Raise ValueError for an unknown estimator, an option that it does not take, or a value that
    it does not take."""
    allowed: tuple[str, ...] = ()
    if name != "reward":
        parameters = inspect.signature(find_estimator(name, allow_imports)).parameters
        allowed = tuple(p.name for p in parameters.values() if p.kind == p.KEYWORD_ONLY)
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ValueError(
            f"estimator {name!r} takes no option {unknown[0]!r}; "
            f"it takes {', '.join(allowed) or 'none'}"
        )
    if name != "reward":
        check_numbers(name, find_estimator(name, allow_imports), options)


def spread(rollouts: Sequence[Rollout], per_step: Floats) -> list[Floats]:
    """Put each step's number onto its agent tokens, in full; `per_step` has shape (N,)."""
    result: list[Floats] = []
    start = 0
    for rollout in rollouts:
        keys = [(e.index, s.index) for e in rollout.episodes for s in e.steps]
        values = dict(zip(keys, per_step[start : start + len(keys)], strict=True))
        start += len(keys)
        result.extend(_row_advantages(row, values) for row in rollout.rows)
    return result


def placed_rewards(row: Row) -> Floats:
    """The "reward" estimator: the row's placed per-token rewards themselves.

    Myopic (a step is paid only for what it earns at once) and without a baseline, so its
    gradient is not that of the episode's reward: relative error 0.40, still 0.36 after the best
    rescaling (medians over the enumerable processes of tests/credit/test_bias.py). It is the
    plans' first approach; prefer any other. Raises ValueError for a reward that is not finite.
    """
    mask = np.array(row.agent_token_mask, dtype=np.bool_)
    rewards = np.where(mask, np.array(row.per_token_rewards, dtype=np.float64), 0.0)
    if not np.isfinite(rewards).all():
        raise ValueError(
            f"per-token rewards of session {row.session_id} hold "
            f"{rewards[~np.isfinite(rewards)][0]}; rewards must be finite"
        )
    return rewards


def _row_advantages(row: Row, values: Mapping[tuple[int, int], float]) -> Floats:
    advantages = np.zeros(len(row.token_ids))
    for span in row.spans:
        advantages[span.start : span.stop] = values.get((span.episode, span.step), 0.0)
    return advantages * row.agent_token_mask
