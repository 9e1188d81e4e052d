"""The estimator that gives each token its own reward."""

import numpy as np

from agentsgym.types import Row
from agentsgym.types.records import Floats


def placed_rewards(row: Row) -> Floats:
    """The row's placed per-token rewards themselves, shape (T,), 0 off agent tokens.

    Myopic (a step is rewarded only for its immediate reward) and without a baseline, so its
    gradient is not that of the episode's reward. Raises ValueError for a reward that is not finite.
    """
    mask = np.array(row.agent_token_mask, dtype=np.bool_)
    rewards = np.where(mask, np.array(row.per_token_rewards, dtype=np.float64), 0.0)
    if not np.isfinite(rewards).all():
        raise ValueError(
            f"per-token rewards of session {row.session_id} hold "
            f"{rewards[~np.isfinite(rewards)][0]}; rewards must be finite"
        )
    return rewards
