"""Mastermind in words: the environment, its codes, and its reference players."""

from agentsgym.envs.mastermind.best_play import TrialPlan, make_player
from agentsgym.envs.mastermind.codes import CodeSpace
from agentsgym.envs.mastermind.env import MastermindEnv

__all__ = ["CodeSpace", "MastermindEnv", "TrialPlan", "make_player"]
