"""What a comparison can show, told before anything is played."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from agentsgym.evaluation.student import t_power

EVEN = math.sqrt(0.5)
"""Standard deviation of the difference of two independent wins, each with probability 1/2: the
largest that two independent win rates can have."""

_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """A paired comparison on `pairs` rollouts of `clusters` tasks.

    `spread` is the standard deviation of one pair's difference. The error is spread/√pairs: pairs
    of one cluster are taken as independent, so a task is as hard for one side as for the other.
    """

    pairs: int
    clusters: int
    spread: float = EVEN

    @classmethod
    def of(cls, clusters: Sequence[Hashable], spread: float = EVEN) -> "Plan":
        """The plan for one pair per entry, each with its cluster."""
        return cls(len(clusters), len(set(clusters)), spread)

    def power(self, difference: float) -> float:
        """The probability that `compare` shows a true difference of this size."""
        if self.clusters < 2:
            return 0.0
        return t_power(abs(difference) * math.sqrt(self.pairs) / self.spread, self.clusters - 1)

    def smallest(self, power: float = 0.8) -> float:
        """The smallest difference that is shown with this probability; infinite for one cluster."""
        if self.clusters < 2:
            return math.inf
        low, high = 0.0, self.spread
        while self.power(high) < power:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.power(middle) < power else (low, middle)
        return high

    def if_alike(self) -> "Plan":
        """The plan if all pairs of a cluster have one difference, as where a model knows some
        solutions and the other does not: a cluster then counts as one pair."""
        return Plan(self.clusters, self.clusters, self.spread)
