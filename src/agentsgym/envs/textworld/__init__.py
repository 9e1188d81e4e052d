"""TextWorld: the environment and its games. Needs the extra `textworld` to play."""

from agentsgym.envs.textworld.env import TextWorldEnv
from agentsgym.envs.textworld.games import GenerationFailed, Task
from agentsgym.envs.textworld.recipe import Recipe, recipe
from agentsgym.envs.textworld.walkthrough import WalkthroughAgent

__all__ = ["GenerationFailed", "Recipe", "Task", "TextWorldEnv", "WalkthroughAgent", "recipe"]
