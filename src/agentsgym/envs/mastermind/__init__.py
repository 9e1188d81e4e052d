"""Mastermind in words: the environment, its tasks, and the players whose worth is known."""

from agentsgym.envs.mastermind.agents import MastermindAgent, MastermindTeacher
from agentsgym.envs.mastermind.codes import CodeSpace, Feedback, feedback
from agentsgym.envs.mastermind.env import MastermindEnv
from agentsgym.envs.mastermind.players import ExactPlayer, GreedyPlayer, make_player
from agentsgym.envs.mastermind.trials import Player, TrialPlan, Worth, worth, worth_with_hint

__all__ = [
    "CodeSpace",
    "ExactPlayer",
    "Feedback",
    "GreedyPlayer",
    "MastermindAgent",
    "MastermindEnv",
    "MastermindTeacher",
    "Player",
    "TrialPlan",
    "Worth",
    "feedback",
    "make_player",
    "worth",
    "worth_with_hint",
]
