"""TextWorld: the environment and its games. Needs the extra `textworld` to play."""

from agentsgym.envs.command_game import GenerationFailed
from agentsgym.envs.textworld.env import TextWorldEnv

__all__ = ["GenerationFailed", "TextWorldEnv"]
