"""The credit of a group's steps by each estimator, as the page shows it."""

from collections.abc import Sequence

from agentsgym.credit import ESTIMATORS
from agentsgym.report.credit import compare_credit
from agentsgym.runs.files import StoredRollout

Credit = dict[str, dict[tuple[int, int], float | None]]
"""Estimator → (episode, step) → the number that it gives the step; None if it is not stored."""


def group_credit(members: Sequence[StoredRollout], used: str | None) -> dict[int, Credit]:
    """Each rollout's credit, by its number in the group.

    Estimators that read the policy's probabilities of other actions, which are not stored, have
    numbers only in a run that was trained with them (`used`): the stored advantages.
    """
    computed: dict[int, Credit] = {}
    for step in compare_credit([line.rollout for line in members]):
        own = computed.setdefault(step.rollout, {})
        for name, value in step.credit.items():
            own.setdefault(name, {})[step.episode, step.step] = value
    return {
        line.rollout.index: _of_rollout(line, computed.get(line.rollout.index, {}), used)
        for line in members
    }


def _of_rollout(line: StoredRollout, computed: Credit, used: str | None) -> Credit:
    return {
        name: (_stored(line) if name == used else {})
        if estimator.reads_choices
        else computed.get(name, {})
        for name, estimator in ESTIMATORS.items()
    }


def _stored(line: StoredRollout) -> dict[tuple[int, int], float | None]:
    """The stored advantage of each step with agent tokens."""
    if line.advantages is None:
        return {}
    return {
        span.key: float(advantages[span.start])
        for row, advantages in zip(line.rollout.rows, line.advantages, strict=True)
        for span in row.spans
        if span.length
    }
