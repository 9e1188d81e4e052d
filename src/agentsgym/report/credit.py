"""The credit that each estimator would assign to recorded rollouts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.credit import ESTIMATORS, step_advantages, table_of
from agentsgym.types import Rollout, StepSpan


@dataclass(frozen=True, slots=True)
class StepCredit:
    """One step and its credit by estimator.

    `credit["reward"]` is the sum of the placed rewards on the step's tokens, that of any other
    estimator the advantage of each of them. `tokens` counts the step's agent tokens.
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
    rollouts: Sequence[Rollout],
    estimators: Sequence[str] = (*ESTIMATORS, "reward"),
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[StepCredit]:
    """Credit of every step under each estimator, in the order of play.

    The rollouts must include whole groups. `options` has options by estimator. Raises ValueError
    for an unknown estimator.
    """
    table = table_of(rollouts)
    by_name = {
        name: step_advantages(table, name, **(options or {}).get(name, {}))
        for name in estimators
        if name != "reward"
    }
    result = []
    row = 0
    for rollout in rollouts:
        spans, placed = _spans(rollout), _placed(rollout)
        for episode in rollout.episodes:
            for step in episode.steps:
                key = (episode.index, step.index)
                credit = {name: float(values[row]) for name, values in by_name.items()}
                if "reward" in estimators:
                    credit["reward"] = placed.get(key, 0.0)
                result.append(
                    StepCredit(
                        group=rollout.group,
                        rollout=rollout.index,
                        episode=episode.index,
                        step=step.index,
                        action=step.action,
                        reward=step.reward,
                        tokens=spans[key].length if key in spans else 0,
                        failed=rollout.failed,
                        credit=credit,
                    )
                )
                row += 1
    return result


def _spans(rollout: Rollout) -> dict[tuple[int, int], StepSpan]:
    return {(span.episode, span.step): span for row in rollout.rows for span in row.spans}


def _placed(rollout: Rollout) -> dict[tuple[int, int], float]:
    return {
        (span.episode, span.step): sum(row.per_token_rewards[span.start : span.stop])
        for row in rollout.rows
        for span in row.spans
    }
