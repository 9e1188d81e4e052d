"""The table of the advantage estimators: a line and a file for each."""

from collections.abc import Mapping
from importlib import import_module

from agentsgym.credit.estimator import Estimator
from agentsgym.types.names import table

NAMES = (
    "grpo",
    "rloo",
    "reinforce_pp",
    "step_return",
    "gigpo",
    "trial",
    "trial_cv",
    "branch",
    "gae",
    "reward",
)
"""Each is a file here, with the function and its entry `ESTIMATOR`."""

ESTIMATORS: Mapping[str, Estimator] = table(
    *(import_module(f"{__name__}.{name}").ESTIMATOR for name in NAMES)
)
"""The estimators by name."""
