"""What a player knows about a hidden value, as exact counts.

A game hides `facts` values, each one of `choices` equally likely ones. `Evidence` about a value has
an integer per possible value: RULED_OUT, or the number of answers that agree with it, less the
smallest such number. With answers that are wrong with probability ε among M possible ones, a value
with count c has the posterior probability ρ^c / Σ ρ^c', ρ = (1 − ε)(M − 1) / ε.
"""

from collections.abc import Sequence

Evidence = tuple[int, ...]
Beliefs = tuple[Evidence, ...]
RULED_OUT = -1


def nothing_known(choices: int) -> Evidence:
    """Every value is equally likely."""
    return (0,) * choices


def certain(choices: int, value: int) -> Evidence:
    """The value is known."""
    return tuple(0 if other == value else RULED_OUT for other in range(choices))


def without(evidence: Evidence, value: int) -> Evidence:
    """The evidence once `value` is known to be wrong."""
    return _normal([RULED_OUT if other == value else c for other, c in enumerate(evidence)])


def heard(evidence: Evidence, agrees: Sequence[bool], *, noisy: bool) -> Evidence:
    """The evidence after an answer; `agrees` says for each value whether it agrees with it."""
    if noisy:
        counts = [c if c == RULED_OUT else c + ok for c, ok in zip(evidence, agrees, strict=True)]
    else:
        counts = [c if ok else RULED_OUT for c, ok in zip(evidence, agrees, strict=True)]
    return _normal(counts)


def _normal(counts: Sequence[int]) -> Evidence:
    """The counts less the smallest one. Raises ValueError if no value is left."""
    least = min((c for c in counts if c != RULED_OUT), default=None)
    if least is None:
        raise ValueError("the answers contradict each other: no value is left")
    return tuple(c if c == RULED_OUT else c - least for c in counts)


def posterior(evidence: Evidence, ratio: float) -> list[float]:
    """The probability of each value, shape (choices,); `ratio` is ρ (1.0 without noise, where all
    values that are left are equally likely)."""
    most = max(evidence) if ratio >= 1.0 else 0
    weights = [0.0 if c == RULED_OUT else ratio ** (c - most) for c in evidence]
    total = sum(weights)
    return [weight / total for weight in weights]
