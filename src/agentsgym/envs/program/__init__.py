"""Any program that calls a model, as an environment."""

from agentsgym.envs.program.env import ProgramEnv
from agentsgym.envs.program.run import ClientSettings

__all__ = ["ClientSettings", "ProgramEnv"]
