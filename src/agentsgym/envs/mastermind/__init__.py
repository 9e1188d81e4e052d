"""Mastermind in words: the environment, its tasks, and the players whose worth is known."""

from agentsgym.envs.mastermind.best_play import (
    ExactPlayer,
    GreedyPlayer,
    Player,
    TrialPlan,
    Worth,
    make_player,
    worth,
    worth_with_hint,
)
from agentsgym.envs.mastermind.codes import CodeSpace, Feedback, feedback
from agentsgym.envs.mastermind.env import MastermindEnv

__all__ = [
    "CodeSpace",
    "ExactPlayer",
    "Feedback",
    "GreedyPlayer",
    "MastermindEnv",
    "Player",
    "TrialPlan",
    "Worth",
    "feedback",
    "make_player",
    "worth",
    "worth_with_hint",
]
