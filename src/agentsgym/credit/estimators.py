"""Advantage estimators: pure functions from a StepTable to one number per step, shape (N,)."""

import numpy as np

from agentsgym.credit.table import Floats, StepTable

# Keeps a group whose rewards are (almost) equal from being divided by nothing; TRL's value.
_EPSILON = 1e-4


def grpo(table: StepTable, *, scale_rewards: str = "group") -> Floats:
    """Group-normalised final reward, the same for each step of a rollout.

    A = (R − mean of the group) / (std + 1e-4), with the standard deviation (ddof 1) of the group
    for `scale_rewards="group"`, of all rollouts of the same environment for "batch", and 1 for
    "none". Failed rollouts get 0 and enter no mean. A group of one gets 0. Unscaled, its expected
    gradient is (G−1)/G times the policy gradient; scaling weights tasks by their difficulty.
    Source: Shao et al. 2024 (GRPO), arXiv 2402.03300; "none" is Liu et al. 2025 (Dr. GRPO).
    """
    if scale_rewards not in ("group", "batch", "none"):
        raise ValueError(f"scale_rewards must be 'group', 'batch' or 'none', got {scale_rewards!r}")
    per_rollout = np.zeros(len(table.group))
    for group in np.unique(table.group[table.live]):
        members = np.flatnonzero((table.group == group) & table.live)
        rewards = table.final_reward[members]
        per_rollout[members] = rewards - rewards.mean()
        if scale_rewards == "group":
            per_rollout[members] /= _std(rewards) + _EPSILON
    if scale_rewards == "batch":
        for env in set(table.env[table.live]):
            members = np.flatnonzero((table.env == env) & table.live)
            per_rollout[members] /= _std(table.final_reward[members]) + _EPSILON
    return per_rollout[table.rollout]


def _std(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0
