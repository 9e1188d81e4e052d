"""Bandit: a Bernoulli bandit in words, with exact best play."""

from agentsgym.envs.bandit.best_play import FiniteHorizon, trial_weights
from agentsgym.envs.bandit.env import BanditEnv

__all__ = ["BanditEnv", "FiniteHorizon", "trial_weights"]
