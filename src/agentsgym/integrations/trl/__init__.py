"""Our environments in TRL's own `GRPOTrainer`: docs/integrations/trl.md.

`rollout_func` plays the rows of a dataset that `prompt_dataset` made and returns exact tokens,
`episode_reward` is their reward. `environment_factory` gives a tool-calling model the environment
as a tool.
"""

from typing import TYPE_CHECKING

from agentsgym.integrations.trl.player import prompt_dataset, task_prompt
from agentsgym.integrations.trl.rollouts import episode_reward
from agentsgym.integrations.trl.tools import ToolEnvironment, environment_factory
from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.integrations.trl.rollouts import RolloutFunc, rollout_func

__all__ = [
    "RolloutFunc",
    "ToolEnvironment",
    "environment_factory",
    "episode_reward",
    "prompt_dataset",
    "rollout_func",
    "task_prompt",
]

__getattr__ = lazy_names(__name__, {"RolloutFunc": "rollouts", "rollout_func": "rollouts"})
