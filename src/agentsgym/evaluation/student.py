"""Student's t distribution with whole degrees of freedom, and the power of a two-sided t test."""

import functools
import math

import numpy as np

_HALVINGS = 100  # of a bracket: beyond the precision of a float
_POINTS = 400


def t_cdf(t: float, dof: int) -> float:
    """P(T <= t): Abramowitz and Stegun, 26.7.3 and 26.7.4. Raises ValueError for dof < 1."""
    if dof < 1:
        raise ValueError(f"need at least one degree of freedom, got {dof}")
    angle = math.atan2(t, math.sqrt(dof))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    term = math.cos(angle) if dof % 2 else 1.0
    total = 0.0
    for k in range(3 if dof % 2 else 2, dof + 1, 2):
        total += term
        term *= square * (k - 1) / k
    inside = sine * total if dof % 2 == 0 else (angle + sine * total) * 2 / math.pi
    return 0.5 + inside / 2


@functools.lru_cache
def t_quantile(share: float, dof: int) -> float:
    """The t with P(T <= t) = `share`, by bisection. Raises ValueError unless 0 < share < 1."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"need a share between 0 and 1, got {share}")
    if share < 0.5:
        return -t_quantile(1.0 - share, dof)
    low, high = 0.0, 1.0
    while t_cdf(high, dof) < share:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, dof) < share else (low, middle)
    return high


def t_power(effect: float, dof: int, *, level: float = 0.95) -> float:
    """The probability that a two-sided t test finds a difference of `effect` standard errors.

    That is P(|Z + effect| > c·S) with Z standard normal and S² = χ²/dof independent of it, where c
    is the critical value at `level`; the density of S is integrated numerically.
    """
    critical = t_quantile((1.0 + level) / 2, dof)
    spread, weights = _spread(dof)
    found = [_tail(critical * s - effect) + _tail(critical * s + effect) for s in spread]
    return float(np.dot(weights, found))


def _spread(dof: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of S = √(χ²/dof) and their probabilities."""
    width = 8.0 / math.sqrt(2 * dof)
    edges = np.linspace(max(0.0, 1.0 - width), 1.0 + width, _POINTS + 1)
    spread = (edges[1:] + edges[:-1]) / 2
    log_density = (dof - 1) * np.log(spread) - dof * spread**2 / 2
    weights = np.exp(log_density - log_density.max())
    return spread, weights / weights.sum()


def _tail(z: float) -> float:
    """P(Z > z) of a standard normal."""
    return math.erfc(z / math.sqrt(2)) / 2
