"""Expected scores of the bandit's players, and Thompson sampling: pull each arm with the posterior
probability that it is the best one.

In a free shot, where a pull earns nothing, it samples the top two instead: with probability 1/2
the best arm of a posterior draw, else the best of the other arms in a new draw, so that it does not
only confirm its current belief (after Russo, 2016).
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import comb

import numpy as np

from agentsgym.envs.bandit import (
    UNIFORM,
    Counts,
    FiniteHorizon,
    Prior,
    no_counts,
    observe,
    predictive,
)
from agentsgym.types.rows import Floats

Policy = Callable[[int, Counts], Sequence[float]]
"""From (pulls made in the trial, counts) to the probability of pulling each arm."""


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


def best_policy(player: FiniteHorizon) -> Policy:
    """The best play as probabilities."""

    def policy(pulled: int, counts: Counts) -> list[float]:
        best = player.best_arm(counts, pulled)
        return [float(arm == best) for arm in range(player.arms)]

    return policy


def best_arm_odds(counts: Counts, prior: Prior = UNIFORM) -> list[float]:
    """Probability that each arm is the best one, shape (arms,): ∫ f_a(x) Π_{b≠a} F_b(x) dx.

    For a prior of whole numbers the integrand is a polynomial and Gauss–Legendre quadrature is
    exact; another prior raises ValueError.
    """
    if any(parameter != int(parameter) or parameter < 1 for parameter in prior):
        raise ValueError(f"exact odds need a prior of whole numbers, got {prior}")
    order = sorted(range(len(counts)), key=lambda arm: counts[arm])
    odds = _odds(tuple(counts[arm] for arm in order), (int(prior[0]), int(prior[1])))
    return [odds[order.index(arm)] for arm in range(len(counts))]


@functools.lru_cache(maxsize=100_000)
def _odds(counts: Counts, prior: tuple[int, int]) -> tuple[float, ...]:
    shapes = [(s + prior[0], f + prior[1]) for s, f in counts]
    x, weights = _nodes(sum(a + b for a, b in shapes) // 2 + 1)
    above = [_cumulative(a, b, x) for a, b in shapes]
    result = []
    for arm, (a, b) in enumerate(shapes):
        density = a * comb(a + b - 1, a) * x ** (a - 1) * (1 - x) ** (b - 1)
        others = [above[other] for other in range(len(shapes)) if other != arm]
        result.append(float((weights * density * np.prod(others, axis=0)).sum()))
    return tuple(result)


@functools.cache
def _nodes(count: int) -> tuple[Floats, Floats]:
    """Gauss–Legendre nodes and weights on [0, 1]; exact to degree 2·count − 1."""
    x, weights = np.polynomial.legendre.leggauss(count)
    return (x + 1) / 2, weights / 2


def _cumulative(a: int, b: int, x: Floats) -> Floats:
    """Distribution function of Beta(a, b), whole a and b: at least a of a + b − 1 below x."""
    n = a + b - 1
    terms = [comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1)]
    return np.asarray(np.sum(terms, axis=0), dtype=np.float64)


def thompson_policy(weights: Sequence[float], prior: Prior = UNIFORM) -> Policy:
    """Thompson sampling as exact probabilities, top-two where the weight of a pull is 0."""

    def policy(pulled: int, counts: Counts) -> list[float]:
        return best_arm_odds(counts, prior) if weights[pulled] else top_two(counts, prior)

    return policy


def top_two(counts: Counts, prior: Prior = UNIFORM) -> list[float]:
    """Top-two probabilities, shape (arms,): o_a/2 + Σ_{b≠a} o_b/2 · P(a is best of all but b)."""
    result = [odds / 2 for odds in best_arm_odds(counts, prior)]
    for first, odds in enumerate(best_arm_odds(counts, prior)):
        others = [arm for arm in range(len(counts)) if arm != first]
        seconds = best_arm_odds(tuple(counts[arm] for arm in others), prior)
        for arm, second in zip(others, seconds, strict=True):
            result[arm] += odds * second / 2
    return result
