"""ALFWorld: the environment, its games, its expert. Needs the extra `alfworld` to play."""

from agentsgym.envs.alfworld.env import ALFWorldEnv
from agentsgym.envs.alfworld.games import NoGames
from agentsgym.envs.alfworld.generator import TASK_TYPES, generate
from agentsgym.envs.command_game import ExpertAgent, GenerationFailed

__all__ = ["TASK_TYPES", "ALFWorldEnv", "ExpertAgent", "GenerationFailed", "NoGames", "generate"]
