"""The finite-horizon Bayes-optimal player of a Bernoulli bandit, by dynamic programming.

Knowledge is `Counts`: (successes, failures) of each arm. With independent Beta(a, b) priors an arm
with counts (s, f) succeeds next with probability (s + a) / (s + f + a + b).
"""

import math
from collections.abc import Sequence

from agentsgym.envs.known_game import episode_weights

Counts = tuple[tuple[int, int], ...]
Prior = tuple[float, float]
UNIFORM: Prior = (1.0, 1.0)
MAX_STATES = 200_000
_TIE = 1e-12


def no_counts(arms: int) -> Counts:
    """Nothing pulled yet."""
    return ((0, 0),) * arms


def observe(counts: Counts, arm: int, success: bool) -> Counts:
    """The counts after one more pull of `arm`."""
    s, f = counts[arm]
    return (*counts[:arm], (s + success, f + (not success)), *counts[arm + 1 :])


def add(left: Counts, right: Counts) -> Counts:
    """The sum of two counts."""
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(left, right, strict=True))


def predictive(count: tuple[int, int], prior: Prior) -> float:
    """Probability that an arm with these counts succeeds next."""
    (s, f), (a, b) = count, prior
    return (s + a) / (s + f + a + b)


def trial_weights(pulls: int, episodes: int = 1, free_shots: int = 0) -> tuple[float, ...]:
    """The value of a success at each pull of a trial: its share of the trial's score.

    Shape (episodes · pulls,): 0 in the first `free_shots` episodes, else
    1 / (pulls · (episodes − free_shots)), so that the score (the mean reward of the scored
    episodes) is the weighted sum of successes and lies in [0, 1].
    """
    shares = episode_weights(episodes, free_shots)
    return tuple(share / pulls for share in shares for _ in range(pulls))


class FiniteHorizon:
    """Maximizes E[Σ_t weights[t] · success at pull t] over all policies, exactly.

    With w the weights, T their number, and p_a the predictive probability of arm a at counts c,

        V_T(c) = 0,   V_t(c) = max_a p_a (w_t + V_{t+1}(c + success of a))
                                     + (1 − p_a) V_{t+1}(c + failure of a).

    The weights are the trial's rewards: 0 in free shots, which the player then uses to learn (see
    `trial_weights`). The arms have equal priors, so counts are kept sorted. Raises ValueError if
    more than about `MAX_STATES` states would be needed.
    """

    def __init__(self, arms: int, weights: Sequence[float], prior: Prior = UNIFORM) -> None:
        if arms < 1 or min(prior) <= 0:
            raise ValueError(f"need arms >= 1 and a positive prior; got {arms}, {prior}")
        states = state_count(arms, len(weights))
        if states > MAX_STATES:
            raise ValueError(
                f"{arms} arms and {len(weights)} pulls need about {states} states, "
                f"more than {MAX_STATES}"
            )
        self.arms = arms
        self.weights = tuple(weights)
        self.prior = prior
        self._left = [sum(self.weights[t:]) for t in range(len(self.weights) + 1)]
        self._values: dict[tuple[int, Counts], float] = {}

    def value(self, counts: Counts | None = None, pulled: int = 0) -> float:
        """Expected weighted successes of the remaining pulls, at `counts` after `pulled` pulls."""
        return self._value(pulled, tuple(sorted(counts or no_counts(self.arms))))

    def action_values(self, counts: Counts, pulled: int) -> list[float]:
        """The value of each arm if the best policy follows, shape (arms,)."""
        return [self._action_value(pulled, counts, arm) for arm in range(self.arms)]

    def best_arm(self, counts: Counts, pulled: int) -> int:
        """The arm to pull; the first of equally good ones."""
        values = self.action_values(counts, pulled)
        highest = max(values)
        return next(arm for arm, value in enumerate(values) if value >= highest - _TIE)

    def _value(self, pulled: int, counts: Counts) -> float:
        if not self._left[pulled]:
            return 0.0
        key = (pulled, counts)
        if key not in self._values:
            distinct = {count: arm for arm, count in enumerate(counts)}
            self._values[key] = max(
                self._action_value(pulled, counts, arm) for arm in distinct.values()
            )
        return self._values[key]

    def _action_value(self, pulled: int, counts: Counts, arm: int) -> float:
        p = predictive(counts[arm], self.prior)
        won = tuple(sorted(observe(counts, arm, True)))
        lost = tuple(sorted(observe(counts, arm, False)))
        gain = self.weights[pulled] + self._value(pulled + 1, won)
        return p * gain + (1.0 - p) * self._value(pulled + 1, lost)


def state_count(arms: int, pulls: int) -> int:
    """About how many sorted counts are reachable within `pulls` pulls."""
    return math.comb(pulls + 2 * arms, 2 * arms) // math.factorial(arms)
