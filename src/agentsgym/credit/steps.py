"""Credit of steps, with the steps' keys."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentsgym.credit.table import StepTable
from agentsgym.types import Row
from agentsgym.types.arrays import Floats, Ints

StepKey = tuple[int, int]
"""(episode, step) within a rollout."""

RolloutKey = tuple[int, int]
"""(group, index in the group)."""


@dataclass(frozen=True, slots=True)
class StepAdvantages:
    """One number per step, with the step's key.

    All of shape (N,): `group`, `rollout` (its index in the group), `episode` and `step` int64,
    `value` float64.
    """

    group: Ints
    rollout: Ints
    episode: Ints
    step: Ints
    value: Floats

    @classmethod
    def of(cls, table: StepTable, value: Floats) -> "StepAdvantages":
        """The numbers of a table's steps, in table order."""
        owner = table.rollout
        return cls(table.group[owner], table.index[owner], table.episode, table.step, value)

    def by_rollout(self) -> dict[RolloutKey, dict[StepKey, float]]:
        """Rollout → step → number, without rollouts that have no steps."""
        found: dict[RolloutKey, dict[StepKey, float]] = {}
        columns = (self.group, self.rollout, self.episode, self.step, self.value)
        for group, rollout, episode, step, value in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            found.setdefault((group, rollout), {})[episode, step] = value
        return found


def to_tokens(rows: Sequence[Row], steps: StepAdvantages) -> list[Floats]:
    """Each step's number, in full, on each of its agent tokens: per row float64 of shape (T,), 0
    elsewhere. Rows and steps are matched by their keys, so their order does not matter."""
    values = steps.by_rollout()
    return [_on_row(row, values.get((row.group, row.rollout), {})) for row in rows]


def _on_row(row: Row, values: dict[StepKey, float]) -> Floats:
    advantages = np.zeros(len(row.token_ids))
    for span in row.spans:
        advantages[span.start : span.stop] = values.get(span.key, 0.0)
    return advantages * row.agent_token_mask
