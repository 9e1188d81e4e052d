"""Credit assignment: a number for each step, and so for each agent token."""

from agentsgym.credit.advantages import (
    StepAdvantages,
    advantages,
    check_estimator,
    credit_steps,
    find_estimator,
    to_tokens,
)
from agentsgym.credit.advantages import spread as _spread
from agentsgym.credit.advantages import step_advantages as _step_advantages
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.estimators import ESTIMATORS
from agentsgym.credit.estimators.reward import placed_rewards
from agentsgym.credit.table import StepTable, concatenate, table_of
from agentsgym.types.renamed import renamed

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
    "placed_rewards",
    "table_of",
    "to_tokens",
]

__getattr__ = renamed(
    __name__,
    {
        "spread": ("to_tokens", lambda: _spread),
        "step_advantages": ("credit_steps", lambda: _step_advantages),
    },
)
