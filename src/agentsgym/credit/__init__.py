"""Credit assignment: what each step, and so each agent token, is worth."""

from agentsgym.credit.advantages import (
    ESTIMATORS,
    advantages,
    check_estimator,
    find_estimator,
    placed_rewards,
    spread,
    step_advantages,
)
from agentsgym.credit.table import StepTable, concatenate, table_of

__all__ = [
    "ESTIMATORS",
    "StepTable",
    "advantages",
    "check_estimator",
    "concatenate",
    "find_estimator",
    "placed_rewards",
    "spread",
    "step_advantages",
    "table_of",
]
