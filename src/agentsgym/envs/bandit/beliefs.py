"""A bandit player's knowledge, and the exact expected score of a policy.

Knowledge is `Counts`: (successes, failures) of each arm. With independent Beta(a, b) priors an arm
with counts (s, f) succeeds next with probability (s + a) / (s + f + a + b).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

Counts = tuple[tuple[int, int], ...]
Prior = tuple[float, float]
UNIFORM: Prior = (1.0, 1.0)

Policy = Callable[[int, Counts], Sequence[float]]
"""From (pulls made in the trial, counts) to the probability of pulling each arm."""


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
    if not 0 <= free_shots < episodes or pulls < 1:
        raise ValueError(
            f"need pulls >= 1 and 0 <= free_shots < episodes; got pulls={pulls}, "
            f"free_shots={free_shots}, episodes={episodes}"
        )
    scored = 1.0 / (pulls * (episodes - free_shots))
    return (0.0,) * (pulls * free_shots) + (scored,) * (pulls * (episodes - free_shots))


def expected_successes(
    policy: Policy,
    pulls: int,
    *,
    arms: int = 0,
    prior: Prior = UNIFORM,
    probabilities: Sequence[float] | None = None,
) -> list[float]:
    """Probability of success at each of `pulls` pulls, shape (pulls,), summed over all histories.

    With `probabilities` these are the arms; without, `arms` arms are drawn from the prior. Exact;
    it visits all reachable counts, at most C(pulls + 2·arms, 2·arms).
    """
    number = len(probabilities) if probabilities is not None else arms
    reached: dict[Counts, float] = {no_counts(number): 1.0}
    successes = []
    for pulled in range(pulls):
        following: dict[Counts, float] = defaultdict(float)
        total = 0.0
        for counts, weight in reached.items():
            for arm, chance in enumerate(policy(pulled, counts)):
                if not chance:
                    continue
                p = predictive(counts[arm], prior) if probabilities is None else probabilities[arm]
                total += weight * chance * p
                following[observe(counts, arm, True)] += weight * chance * p
                following[observe(counts, arm, False)] += weight * chance * (1.0 - p)
        successes.append(total)
        reached = following
    return successes


def weighted(successes: Sequence[float], weights: Sequence[float]) -> float:
    """The trial's score: Σ weight · probability of success over its pulls."""
    return sum(w * p for w, p in zip(weights, successes, strict=True))
