"""Bandit: a Bernoulli bandit in words, its tasks, and players with exactly known scores."""

from agentsgym.envs.bandit.agents import BanditOptimalAgent, BanditTeacher, ThompsonAgent
from agentsgym.envs.bandit.beliefs import Counts, expected_successes, trial_weights, weighted
from agentsgym.envs.bandit.env import BanditEnv
from agentsgym.envs.bandit.horizon import FiniteHorizon
from agentsgym.envs.bandit.thompson import best_arm_odds, thompson_policy

__all__ = [
    "BanditEnv",
    "BanditOptimalAgent",
    "BanditTeacher",
    "Counts",
    "FiniteHorizon",
    "ThompsonAgent",
    "best_arm_odds",
    "expected_successes",
    "thompson_policy",
    "trial_weights",
    "weighted",
]
