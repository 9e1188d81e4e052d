"""The advantage estimators: one entry for each, and one file per family of functions."""

from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.estimators.by_state import gigpo
from agentsgym.credit.estimators.episodic import (
    grpo,
    placed_rewards,
    reinforce_pp,
    rloo,
    step_return,
)
from agentsgym.credit.estimators.gae import gae
from agentsgym.credit.estimators.trial import trial
from agentsgym.credit.estimators.trial_cv import trial_cv
from agentsgym.types.names import table

ESTIMATORS = table(
    Estimator(
        name="grpo",
        help="the rollout's final reward against the mean of its group, scaled",
        assign=grpo,
        takes_scale_rewards=True,
        variants=(
            Variant(options={"scale_rewards": "none"}, error=0.33, turned=0.0),
            Variant(options={"scale_rewards": "group"}, error=0.46, turned=0.19),
            Variant(options={"scale_rewards": "batch"}, error=None, turned=None),
        ),
    ),
    Estimator(
        name="rloo",
        help="the final reward against the mean of the group's other rollouts",
        assign=rloo,
        variants=(Variant(options={}, error=0.0, turned=0.0),),
    ),
    Estimator(
        name="reinforce_pp",
        help="the return against all steps of the batch, scaled",
        assign=reinforce_pp,
        variants=(
            Variant(options={}, error=0.38, turned=0.25),
            Variant(options={"baseline": "group"}, error=0.37, turned=0.26),
            Variant(options={"gamma": 0.0}, error=0.48, turned=0.34),
            Variant(options={"baseline": "loo"}, error=0.0, turned=0.0),
        ),
    ),
    Estimator(
        name="step_return",
        help="a step's return-to-go against that of other rollouts at the same step",
        assign=step_return,
        variants=(Variant(options={}, error=0.0, turned=0.0),),
    ),
    Estimator(
        name="gigpo",
        help="steps that were taken in the same state against each other",
        assign=gigpo,
        variants=(
            Variant(options={}, error=0.0, turned=0.0),
            Variant(options={"baseline": "mean"}, error=0.31, turned=0.13),
            Variant(options={"baseline": "mean_std"}, error=0.38, turned=0.29),
        ),
    ),
    Estimator(
        name="trial",
        help="what is still to be earned in the whole trial: later episodes pay for exploring",
        assign=trial,
        variants=(Variant(options={}, error=0.0, turned=0.0),),
    ),
    Estimator(
        name="trial_cv",
        help='as "trial", without the luck of later actions that others in the group took too',
        assign=trial_cv,
        reads_choices=True,
        variants=(Variant(options={}, error=0.0, turned=0.0),),
    ),
    Estimator(
        name="gae",
        help="what is still to be earned in the rollout, against a critic's value of the step",
        assign=gae,
        reads_values=True,
        variants=(
            Variant(options={}, error=0.0, turned=0.0),
            Variant(options={"gamma": 0.99, "lam": 0.9}, error=0.01, turned=0.01),
        ),
    ),
    Estimator(
        name="reward",
        help="each token's own placed reward, without a baseline",
        assign=placed_rewards,
        per="token",
        variants=(Variant(options={}, error=0.40, turned=0.36),),
    ),
)
"""The estimators by name."""
