"""The share of the value of information that an agent realizes."""

from collections.abc import Mapping
from dataclasses import dataclass

from agentsgym.envs.base import UNINFORMED
from agentsgym.evaluation.evaluate import Evaluation
from agentsgym.evaluation.intervals import Interval


@dataclass(frozen=True, slots=True)
class Information:
    """The `share` and its 95 % interval: 1 for the best play, 0 for the best play that never
    informs itself, negative for less than that."""

    share: float
    ci95: Interval


def information(evaluation: Evaluation, references: Mapping[str, float]) -> Information | None:
    """(reward − without) / (best − without) of an evaluation, its interval on the same scale;
    `references` are mean scores of other players on the same tasks (`other_references`).

    None if the environment does not know both plays, if exploring is worth nothing, or if a
    rollout failed: those that are left would be a choice by their course.
    """
    without, best = references.get(UNINFORMED), evaluation.reference
    low, high = evaluation.reward_ci95
    if without is None or best is None or best <= without or evaluation.failures:
        return None
    if evaluation.reward is None or low is None or high is None:
        return None
    share, lowest, highest = (
        (value - without) / (best - without) for value in (evaluation.reward, low, high)
    )
    return Information(share, (lowest, highest))
