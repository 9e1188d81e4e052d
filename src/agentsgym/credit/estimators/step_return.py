"""A step's return-to-go against that of other rollouts at the same step."""

import numpy as np

from agentsgym.credit.baselines import comparable, leave_one_out, returns_to_go, step_keys
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import StepTable, without_rounding
from agentsgym.types.rows import Floats


def step_return(table: StepTable, *, gamma: float = 1.0) -> Floats:
    """Return-to-go minus its leave-one-out mean at the same step index, shape (N,).

    A_t = G_t − mean_{j≠i} G_t^j over the group's other rollouts that reached step t of the same
    episode, and A_t = G_t if none did (the baseline is then 0). G_t is the discounted return-to-go
    in the episode, times the episode's share of the final reward. A step's index is the number of
    actions before it, and notes are compared with notes; a reflection after the episode has no
    return-to-go.

    Bias: none for gamma = 1, also if the policy decides when to stop, because the baseline does not
    depend on the rollout's own action. Means that include the rollout itself, z-scores, and
    dropping steps that no other rollout reached are biased. gamma < 1 without the factor gamma^t
    optimizes neither the return nor the discounted return (relative error 0.05 and 0.06 at 0.9 on
    three steps, medians over the enumerable processes of tests/credit/test_bias.py).
    Source: return-to-go with a leave-one-out baseline, as in Kool et al. 2019, per step index.
    """
    returns = returns_to_go(table, gamma)
    live = comparable(table)[table.rollout]
    baseline = leave_one_out(returns, table.rollout, step_keys(table), np.zeros(len(returns)))
    difference = without_rounding(returns - baseline, table.size[table.rollout])
    return np.where(live, difference, 0.0)


ESTIMATOR = Estimator(
    name="step_return",
    help="a step's return-to-go minus the mean of other rollouts at the same step",
    assign=step_return,
    variants=(Variant(options={}, error=0.0, turned=0.0),),
)
