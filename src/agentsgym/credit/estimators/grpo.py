"""The final reward against the mean of its group: GRPO, and Dr. GRPO without the scaling."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentsgym.credit.baselines import comparable, less_group_mean
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import StepTable
from agentsgym.types.rows import Floats

# Keeps a group whose rewards are (almost) equal from a division by zero; TRL's value.
EPSILON = 1e-4


def grpo(table: StepTable, *, scale_rewards: str = "group") -> Floats:
    """Group-normalized final reward on every step of a rollout, shape (N,).

    A = (R − mean of the group) / (std + 1e-4), with the standard deviation (ddof 1) of the group
    for `scale_rewards="group"`, of all rollouts of the same environment for "batch", and without
    a divisor for "none".

    Bias: unscaled, its expected gradient is (G−1)/G times the policy gradient, because the mean
    includes the rollout itself; the direction is exact. Scaling by the group's standard deviation
    changes the direction: relative error 0.46, and 0.19 after the best rescaling (medians over
    the enumerable processes of tests/credit/test_bias.py, as all such numbers here).
    Source: Shao et al. 2024 (GRPO), arXiv 2402.03300; "none" is Liu et al. 2025 (Dr. GRPO),
    arXiv 2503.20783.
    """
    if scale_rewards not in ("group", "batch", "none"):
        raise ValueError(f"scale_rewards must be 'group', 'batch' or 'none', got {scale_rewards!r}")
    per_rollout, compared = less_group_mean(table), comparable(table)
    together: NDArray[Any] = table.env if scale_rewards == "batch" else table.group
    for one in np.unique(together[compared]) if scale_rewards != "none" else ():
        members = np.flatnonzero((together == one) & compared)
        per_rollout[members] /= table.final_reward[members].std(ddof=1) + EPSILON
    return per_rollout[table.rollout]


ESTIMATOR = Estimator(
    name="grpo",
    help="the rollout's final reward minus the mean of its group, scaled",
    assign=grpo,
    takes_scale_rewards=True,
    variants=(
        Variant(options={"scale_rewards": "none"}, error=0.33, turned=0.0),
        Variant(options={"scale_rewards": "group"}, error=0.46, turned=0.19),
        Variant(options={"scale_rewards": "batch"}, error=None, turned=None),
    ),
)
