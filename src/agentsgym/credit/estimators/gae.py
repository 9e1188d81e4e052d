"""Generalized advantage estimation over the steps of a rollout, with the values of a critic."""

import numpy as np

from agentsgym.credit.baselines import comparable
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import StepTable
from agentsgym.types.rows import Floats


def gae(table: StepTable, *, gamma: float = 1.0, lam: float = 1.0) -> Floats:
    """Turn-level generalized advantage estimate, shape (N,).

    δ_k = c_k + gamma·V_{k+1} − V_k and A_k = δ_k + gamma·lam·A_{k+1} over the rollout's steps
    across its episodes, with c_k the step's part of the final reward and V_k the critic's value
    before the action (`StepTable.value`), 0 after the last step. A_k + V_k is what the critic
    learns. Where nobody computed values they are 0, and A is the return without a baseline.

    Bias: none for gamma = lam = 1, whatever the values, because they were learned from earlier
    generations and stand before the action. lam < 1 is biased by as much as the values are wrong.
    Source: Schulman et al. 2016, arXiv 1506.02438; steps instead of tokens as in AReaL's code
    (gamma = lam = 1) and Turn-PPO, arXiv 2512.17008 (0.99 and 0.9).
    """
    counted, value = table.counted, table.value
    result = np.zeros(len(counted))
    for i in range(len(counted) - 1, -1, -1):
        result[i] = counted[i] - value[i]
        if i + 1 < len(counted) and table.rollout[i + 1] == table.rollout[i]:
            result[i] += gamma * (value[i + 1] + lam * result[i + 1])
    return np.where(comparable(table)[table.rollout], result, 0.0)


ESTIMATOR = Estimator(
    name="gae",
    help="the rewards still to come in the rollout, minus a critic's prediction of them",
    assign=gae,
    reads_values=True,
    variants=(
        Variant(options={}, error=0.0, turned=0.0),
        Variant(options={"gamma": 0.99, "lam": 0.9}, error=0.01, turned=0.01),
    ),
)
