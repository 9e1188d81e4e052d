"""From rollouts to one advantage per token: the public entry of credit assignment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentsgym.credit import estimators
from agentsgym.credit.table import Floats, StepTable, table_of
from agentsgym.types import Rollout, RolloutBatch, Row

Estimator = Callable[..., Floats]

ESTIMATORS: Mapping[str, Estimator] = {"grpo": estimators.grpo}
"""Estimators of steps, by name. "reward" is none: it takes the placed per-token rewards."""


def advantages(batch: RolloutBatch, estimator: str = "grpo", **options: Any) -> list[Floats]:
    """Advantages of every row of `batch.rows`: float64, as long as the row, 0 off agent tokens.

    Raises ValueError for an unknown estimator or an option it does not take.
    """
    check_estimator(estimator, options)
    if estimator == "reward":
        return [placed_rewards(row) for row in batch.rows]
    table = table_of(batch.rollouts)
    per_step = step_advantages(table, estimator, **options)
    return spread(batch.rollouts, per_step)


def step_advantages(table: StepTable, estimator: str, **options: Any) -> Floats:
    """One number per step of the table, shape (N,), for any estimator but "reward"."""
    return ESTIMATORS[estimator](table, **options)


def check_estimator(name: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for an unknown estimator or an option that it does not take."""
    if name not in ESTIMATORS and name != "reward":
        known = ", ".join(sorted([*ESTIMATORS, "reward"]))
        raise ValueError(f"unknown advantage estimator {name!r}; known: {known}")
    allowed = () if name == "reward" else estimator_options(name)
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ValueError(
            f"estimator {name!r} takes no option {unknown[0]!r}; "
            f"it takes {', '.join(allowed) or 'none'}"
        )


def estimator_options(name: str) -> tuple[str, ...]:
    """Names of the options of an estimator."""
    return tuple(ESTIMATORS[name].__kwdefaults__ or ())


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
    gradient is not that of the episode's reward: measured error 1.3 times the true gradient on
    the enumerable test process. It is the plans' first approach; prefer any other.
    """
    return np.array(row.per_token_rewards, dtype=np.float64) * row.agent_token_mask


def _row_advantages(row: Row, values: Mapping[tuple[int, int], float]) -> Floats:
    advantages = np.zeros(len(row.token_ids))
    for span in row.spans:
        advantages[span.start : span.stop] = values.get((span.episode, span.step), 0.0)
    return advantages * row.agent_token_mask
