"""The final reward against the mean of the group's other rollouts."""

from agentsgym.credit.baselines import rloo_per_rollout
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import StepTable
from agentsgym.types.rows import Floats


def rloo(table: StepTable) -> Floats:
    """Final reward minus the mean of the group's other rollouts, on every step, shape (N,).

    A = R − mean_{j≠i} R_j. Bias: none, under a constant normalizer of the loss. A loss divided by
    the rollout's own tokens (loss types "grpo", "sapo") turns the gradient by 0.32 (error after
    the best rescaling), one divided by all tokens of three rollouts ("dapo", "cispo", "vespo") by
    0.10, and less the more rollouts share the divisor; "dr_grpo" and "luspo" leave it as it is.
    Source: Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740.
    """
    return rloo_per_rollout(table)[table.rollout]


ESTIMATOR = Estimator(
    name="rloo",
    help="the final reward minus the mean of the group's other rollouts",
    assign=rloo,
    variants=(Variant(options={}, error=0.0, turned=0.0),),
)
