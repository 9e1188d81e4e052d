"""Each token's own placed reward: no comparison, no baseline."""

import numpy as np

from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.types import Rollout
from agentsgym.types.reward_placement import per_token_rewards
from agentsgym.types.rows import Floats


def placed_rewards(rollout: Rollout) -> list[Floats]:
    """The placed per-token rewards of each row themselves, shape (T,), 0 off agent tokens.

    Myopic (a step is rewarded only for its immediate reward) and without a baseline, so its
    gradient is not that of the episode's reward. Raises ValueError for a reward that is not finite.
    """
    rows = [
        np.where(row.agent_token_mask == 1, rewards, 0.0)
        for row, rewards in zip(rollout.rows, per_token_rewards(rollout), strict=True)
    ]
    for rewards in rows:
        if not np.isfinite(rewards).all():
            raise ValueError(
                f"per-token rewards of session {rollout.session_id} hold "
                f"{rewards[~np.isfinite(rewards)][0]}; rewards must be finite"
            )
    return rows


ESTIMATOR = Estimator(
    name="reward",
    help="the reward placed on each token itself, without a baseline",
    assign=placed_rewards,
    per="token",
    variants=(Variant(options={}, error=0.40, turned=0.36),),
)
