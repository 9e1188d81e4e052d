"""Estimators that compare steps taken in the same state: groups within the group.

A step's state is its anchor: the environment's key for the state before the step; without one, the
normalized observation. What they share is `baseline`. "mean" and "mean_std" are the released
codes' `mean_norm` and `mean_std_norm`: means over rows (steps), the step itself included, and with
"mean_std" a division by the standard deviation + 1e-6. "loo" is our form of the same idea, with
means over the group's *other* rollouts, which do not depend on the step's own action. Biases are
medians over the enumerable processes of tests/credit/test_bias.py.
"""

import numpy as np

from agentsgym.credit.baselines import (
    Keys,
    comparable,
    mean_of_others,
    normalized,
    returns_to_go,
    rloo_per_rollout,
    state_keys,
)
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import StepTable, without_rounding
from agentsgym.types.rows import Floats


def gigpo(
    table: StepTable, *, baseline: str = "loo", gamma: float = 1.0, step_weight: float = 1.0
) -> Floats:
    """Episode advantage plus step advantage within groups of equal states, shape (N,).

    With `baseline="loo"` (default) A = (E + ω·S) / (1 + ω): E is the leave-one-out episode
    advantage, S = G_t minus the mean G of the *other* rollouts in the same state, and S = E if no
    other rollout was in it. As released ("mean", "mean_std") A = E + ω·S, with S = 0 for a state
    seen once. The paper averages E over rollouts; the code over rows, so that long ones weigh more.

    Bias: none for "loo" with gamma = 1 and one episode. In a trial G_t ends with the episode, so
    a free shot only gets E's share of A (half, for ω = 1, if all states are matched): use "trial"
    for trials. gamma = 0.9 has error 0.02.
    Source: Feng et al. 2025 (GiGPO), arXiv 2505.10978.
    """
    step = compared(table, returns_to_go(table, gamma), state_keys(table), baseline)
    return with_episode(table, step, baseline, step_weight)


# -- the parts -------------------------------------------------------------------------------------


def compared(
    table: StepTable, values: Floats, keys: Keys, baseline: str, *, ddof: int = 1
) -> Floats:
    """Each step's value against those with the same key, NaN where there are none, shape (N,)."""
    if baseline not in ("loo", "mean", "mean_std"):
        raise ValueError(f"baseline must be 'loo', 'mean' or 'mean_std', got {baseline!r}")
    size = np.fmax(table.size[table.rollout], np.abs(values))
    if baseline == "loo":
        return without_rounding(values - mean_of_others(values, table.rollout, keys)[0], size)
    return normalized(values, keys, size, scale=baseline == "mean_std", ddof=ddof)


def with_episode(table: StepTable, step: Floats, baseline: str, weight: float) -> Floats:
    """The advantage of a step part (NaN where nobody is compared) and the episode part, (N,)."""
    live = comparable(table)[table.rollout]
    if baseline == "loo":
        episode = rloo_per_rollout(table)[table.rollout]
        both = (episode + weight * np.where(np.isnan(step), episode, step)) / (1.0 + weight)
    else:
        final = table.final_reward[table.rollout]
        both = np.nan_to_num(compared(table, final, group_keys(table), baseline))
        both += weight * np.nan_to_num(step)
    return np.where(live, both, 0.0)


def group_keys(table: StepTable) -> Keys:
    """Keys that are equal for all steps of a group that are compared."""
    live = comparable(table)[table.rollout].tolist()
    return list(zip(table.group[table.rollout].tolist(), live, strict=True))


ESTIMATOR = Estimator(
    name="gigpo",
    help='"rloo" averaged with a step\'s return minus the mean of others in the same state',
    assign=gigpo,
    variants=(
        Variant(options={}, error=0.0, turned=0.0),
        Variant(options={"baseline": "mean"}, error=0.31, turned=0.13),
        Variant(options={"baseline": "mean_std"}, error=0.38, turned=0.29),
    ),
)
