"""Bandit: a Bernoulli bandit in words, with exact best play."""

from agentsgym.envs.bandit.best_play import (
    UNIFORM,
    Counts,
    FiniteHorizon,
    Prior,
    no_counts,
    observe,
    predictive,
    trial_weights,
)
from agentsgym.envs.bandit.env import BanditEnv

__all__ = [
    "UNIFORM",
    "BanditEnv",
    "Counts",
    "FiniteHorizon",
    "Prior",
    "no_counts",
    "observe",
    "predictive",
    "trial_weights",
]
