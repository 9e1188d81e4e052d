"""The credit that each estimator would assign to recorded rollouts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentsgym.credit import ESTIMATORS, credit_steps, find_estimator, table_of
from agentsgym.credit.table import spans_of
from agentsgym.evaluation.dependence import Correlation, correlation
from agentsgym.evaluation.effects import Effect
from agentsgym.types import Rollout

RECORDED = tuple(name for name, e in ESTIMATORS.items() if not e.reads_policy)
"""The estimators that need nothing but recorded rollouts."""

_ByRollout = Mapping[tuple[int, int], Mapping[tuple[int, int], float]]


@dataclass(frozen=True, slots=True)
class StepCredit:
    """One step and its credit by estimator.

    `credit` holds the number that an estimator of steps gives the step, and the sum of those that
    one of tokens gives the step's tokens. `tokens` counts the step's agent tokens.
    """

    group: int
    rollout: int
    episode: int
    step: int
    action: str
    reward: float
    tokens: int
    failed: bool
    credit: Mapping[str, float]


def compare_credit(
    rollouts: Sequence[Rollout], estimators: Sequence[str] = RECORDED
) -> list[StepCredit]:
    """Credit of every step under each estimator, in the order of play.

    The rollouts must include whole groups. Raises ValueError for an unknown estimator, or one that
    needs the policy's probabilities or a critic, which are not recorded.
    """
    by_name = {name: _credit(rollouts, name) for name in estimators}
    result = []
    for rollout in rollouts:
        spans = spans_of(rollout)
        for episode in rollout.episodes:
            for step in episode.steps:
                key = (episode.index, step.index)
                result.append(
                    StepCredit(
                        group=rollout.group,
                        rollout=rollout.index,
                        episode=episode.index,
                        step=step.index,
                        action=step.action,
                        reward=step.reward,
                        tokens=spans[key][1].length if key in spans else 0,
                        failed=rollout.failed,
                        credit={
                            name: values[rollout.group, rollout.index].get(key, 0.0)
                            for name, values in by_name.items()
                        },
                    )
                )
    return result


def correlations(effects: Sequence[Effect], lines: Sequence[StepCredit]) -> dict[str, Correlation]:
    """How far each estimator's credit goes together with the measured effects, over tasks."""
    known = [one for one in effects if math.isfinite(one.effect)]
    by_key = {(line.group, line.rollout, line.episode, line.step): line.credit for line in lines}
    credit = [by_key[one.group, one.rollout, one.episode, one.step] for one in known]
    measured, tasks = [one.effect for one in known], [one.group for one in known]
    return {
        name: correlation(measured, [of_step[name] for of_step in credit], tasks)
        for name in (lines[0].credit if lines else ())
    }


def _credit(rollouts: Sequence[Rollout], name: str) -> _ByRollout:
    """Rollout → step → its number, for the rollouts that have steps."""
    estimator = find_estimator(name)
    if estimator.reads_policy:
        reads = (
            "the policy's probabilities of other actions" if estimator.reads_choices else "values"
        )
        raise ValueError(
            f"estimator {name!r} needs {reads}, which are not recorded; choose from "
            f"{', '.join(RECORDED)}"
        )
    if estimator.per == "step":
        return credit_steps(table_of(rollouts), estimator).by_rollout()
    sums: dict[tuple[int, int], dict[tuple[int, int], float]] = {}
    for rollout in rollouts:
        own = sums.setdefault((rollout.group, rollout.index), {})
        for row, values in zip(rollout.rows, estimator(rollout), strict=True):
            own |= {s.key: float(values[s.start : s.stop].sum()) for s in row.spans}
    return sums
