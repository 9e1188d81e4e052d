"""What environments, programs and tools say is a number or a truth value: one rule for all.

A number is a Python, NumPy or other scalar, or an array or tensor without dimensions. A truth value
is True, False or a number that is 0 or 1. No text is either.
"""

import math
from collections.abc import Sequence
from typing import Any

from agentsgym.types.text import short_repr

LARGEST_REWARD = 1e30
"""Limit of a reward's absolute value, so that no sum, square or float32 of rewards overflows."""


def scalar(value: Any) -> Any:
    """The Python value of a NumPy scalar, or of an array or tensor without dimensions; any other
    value as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def number(value: Any) -> float | None:
    """A number as a float, infinite if it is too large for one; None for anything else."""
    if type(value) is float:
        return value
    value = scalar(value)
    if not hasattr(value, "__float__") or getattr(value, "shape", ()) != ():
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def truth(value: Any) -> bool | None:
    """A truth value; None for anything else."""
    return {0.0: False, 1.0: True}.get(-1.0 if (read := number(value)) is None else read)


def checked_number(value: Any, name: str) -> float:
    """A reward as a float. Raises ValueError if it is not finite or too large."""
    result = number(value)
    if result is None or not abs(result) <= LARGEST_REWARD:
        raise ValueError(
            f"{name} must be a finite number of at most {LARGEST_REWARD:g} in size, got "
            f"{short_repr(value)}"
        )
    return result


def checked_truth(value: Any, name: str) -> bool:
    """A truth value as a bool. Raises ValueError for anything else."""
    result = truth(value)
    if result is None:
        raise ValueError(f"{name} must be True or False, got {short_repr(value)}")
    return result


def listed(values: Any) -> Sequence[Any] | None:
    """The entries of a list, a tuple or an array; None for anything else."""
    if not isinstance(values, str | bytes | Sequence):
        values = getattr(values, "tolist", lambda: None)()
    return values if isinstance(values, Sequence) and not isinstance(values, str | bytes) else None
