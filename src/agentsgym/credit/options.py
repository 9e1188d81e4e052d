"""The allowed options of an estimator, and their allowed values."""

import inspect
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from agentsgym.credit.estimator import Estimator

# A discount above 1 would give distant rewards more weight than near ones.
_DISCOUNTS = ("gamma", "trial_gamma")


def check_options(estimator: Estimator, options: Mapping[str, Any]) -> None:
    """Raise ValueError for an option that the estimator does not take, or a numeric option whose
    value is not a number, not finite, or (for a discount) outside [0, 1]."""
    name, allowed = estimator.name, estimator.options
    parameters = inspect.signature(estimator.assign).parameters
    for option, value in options.items():
        if option not in allowed:
            hint = "; an option is a keyword-only argument" if option in parameters else ""
            raise ValueError(
                f"estimator {name!r} takes no option {option!r}; "
                f"it takes {', '.join(allowed) or 'none'}{hint}"
            )
        number = isinstance(value, Real) and not isinstance(value, bool)
        if number and not math.isfinite(value):
            raise ValueError(f"option {option!r} of {name!r} must be finite, got {value}")
        if parameters[option].annotation is float and not number:
            raise ValueError(f"option {option!r} of {name!r} must be a number, got {value!r}")
        if option in _DISCOUNTS and number and not 0 <= value <= 1:
            raise ValueError(f"option {option!r} of {name!r} must be in [0, 1], got {value}")
