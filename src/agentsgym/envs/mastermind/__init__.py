"""Mastermind in words: the environment, its codes, and the players whose worth is known."""

from agentsgym.envs.mastermind.best_play import TrialPlan, make_player, worth, worth_with_hint
from agentsgym.envs.mastermind.codes import CodeSpace
from agentsgym.envs.mastermind.env import MastermindEnv

__all__ = ["CodeSpace", "MastermindEnv", "TrialPlan", "make_player", "worth", "worth_with_hint"]
