"""Our environments in TRL's own `GRPOTrainer`: docs/integrations/trl.md.

`rollout_func` plays the rows of a dataset that `prompt_dataset` made and returns exact tokens,
`episode_reward` is their reward.
"""

from agentsgym.integrations.trl.rollouts import (
    RolloutFunc,
    episode_reward,
    prompt_dataset,
    rollout_func,
    task_prompt,
)

__all__ = [
    "RolloutFunc",
    "episode_reward",
    "prompt_dataset",
    "rollout_func",
    "task_prompt",
]
