"""ALFWorld: the environment, its games, its expert. Needs the extra `alfworld` to play."""

from agentsgym.envs.alfworld.env import ALFWorldEnv, ExpertAgent
from agentsgym.envs.alfworld.games import NoGames, Task
from agentsgym.envs.alfworld.generator import TASK_TYPES, GenerationFailed, generate

__all__ = [
    "TASK_TYPES",
    "ALFWorldEnv",
    "ExpertAgent",
    "GenerationFailed",
    "NoGames",
    "Task",
    "generate",
]
