"""Which numbers an estimator's options take."""

import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

# Above 1 a discount makes what is far away worth more than what is near.
_DISCOUNTS = ("gamma", "trial_gamma")


def check_numbers(name: str, estimator: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise ValueError for an option of numbers whose value is none, is not finite, or, of a
    discount, lies outside [0, 1]."""
    parameters = inspect.signature(estimator).parameters
    for option, value in options.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if number and not math.isfinite(value):
            raise ValueError(f"option {option!r} of {name!r} must be finite, got {value}")
        if parameters[option].annotation is float and not number:
            raise ValueError(f"option {option!r} of {name!r} must be a number, got {value!r}")
        if option in _DISCOUNTS and number and not 0 <= value <= 1:
            raise ValueError(f"option {option!r} of {name!r} must be in [0, 1], got {value}")
