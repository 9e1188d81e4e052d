"""TextWorld: the environment and its games. Needs the extra `textworld` to play."""

from agentsgym.envs.textworld.env import TextWorldEnv, WalkthroughAgent
from agentsgym.envs.textworld.games import GenerationFailed, Recipe, Task, recipe

__all__ = ["GenerationFailed", "Recipe", "Task", "TextWorldEnv", "WalkthroughAgent", "recipe"]
