"""How a figure changes over the steps of a training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_PART, _LEAST_VALUES, _MOST_VALUES = 5, 3, 40
"""A part is a fifth of the curve, but at least 3 and at most 40 values."""


@dataclass(frozen=True, slots=True)
class Part:
    """Values of neighboring steps: their `mean` and its standard `error` (0 of a single value)."""

    first: int
    last: int
    mean: float
    error: float

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last step."""
        return self.first, self.last

    def __str__(self) -> str:
        return f"steps {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric's finite values and the steps they belong to; there is at least one."""

    steps: Sequence[int]
    values: Sequence[float]

    @property
    def early(self) -> Part:
        """The beginning."""
        return self._part(0, self._width)

    @property
    def recent(self) -> Part:
        """The end."""
        return self._part(len(self.values) - self._width, len(self.values))

    @property
    def whole(self) -> Part:
        """All of it."""
        return self._part(0, len(self.values))

    @property
    def is_long(self) -> bool:
        """Whether beginning and end share no value."""
        return len(self.values) >= 2 * self._width

    @property
    def _width(self) -> int:
        size = len(self.values)
        return min(size, _MOST_VALUES, max(_LEAST_VALUES, size // _PART))

    def _part(self, start: int, stop: int) -> Part:
        values = self.values[start:stop]
        count = len(values)
        middle = sum(values) / count
        spread = sum((value - middle) ** 2 for value in values) / max(1, count - 1)
        return Part(self.steps[start], self.steps[stop - 1], middle, math.sqrt(spread / count))


def rise(curve: Curve) -> float:
    """The end's mean minus the beginning's, or 0 within two standard errors of it."""
    early, recent = curve.early, curve.recent
    moved = recent.mean - early.mean
    sure = abs(moved) > 2 * math.hypot(early.error, recent.error)
    return moved if sure and curve.is_long else 0.0


def said(curve: Curve) -> str:
    """The end's mean minus the beginning's, with its interval, in words."""
    early, recent = curve.early, curve.recent
    error = 2 * math.hypot(early.error, recent.error)
    return (
        f"changes by {recent.mean - early.mean:+.3g} ± {error:.2g} from {early} ({early.mean:.3g}) "
        f"to {recent}"
    )
