"""ALFWorld: the environment, its games, its expert. Needs the extra `alfworld` to play."""

from agentsgym.envs.alfworld.env import ALFWorldEnv
from agentsgym.envs.alfworld.expert import ExpertAgent
from agentsgym.envs.alfworld.games import NoGames
from agentsgym.envs.alfworld.generator import GenerationFailed, generate
from agentsgym.envs.alfworld.tasks import TASK_TYPES, Task

__all__ = [
    "TASK_TYPES",
    "ALFWorldEnv",
    "ExpertAgent",
    "GenerationFailed",
    "NoGames",
    "Task",
    "generate",
]
