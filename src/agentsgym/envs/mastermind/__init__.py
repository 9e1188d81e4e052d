"""Mastermind in words: the environment, its codes, and its best player."""

from agentsgym.envs.mastermind.best_play import ExactPlayer
from agentsgym.envs.mastermind.codes import CodeSpace
from agentsgym.envs.mastermind.env import MastermindEnv

__all__ = ["CodeSpace", "ExactPlayer", "MastermindEnv"]
