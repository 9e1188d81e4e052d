"""Credit assignment: a number for each step, and so for each agent token."""

from agentsgym.credit.advantages import (
    StepAdvantages,
    advantages,
    check_estimator,
    credit_steps,
    find_estimator,
    to_tokens,
)
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.estimators import ESTIMATORS
from agentsgym.credit.table import StepTable, concatenate, table_of

__all__ = [
    "ESTIMATORS",
    "Estimator",
    "StepAdvantages",
    "StepTable",
    "Variant",
    "advantages",
    "check_estimator",
    "concatenate",
    "credit_steps",
    "find_estimator",
    "table_of",
    "to_tokens",
]
