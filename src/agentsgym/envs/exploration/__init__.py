"""Explore: games in which exploring costs an episode and pays in later ones, with exact scores."""

from agentsgym.envs.exploration.best_play import (
    Beliefs,
    BestPlayer,
    Claim,
    Evidence,
    Inform,
    Move,
    Plan,
    trial_weights,
)
from agentsgym.envs.exploration.env import ExploreEnv
from agentsgym.envs.exploration.worth import RandomPlayer, Worth, worth

__all__ = [
    "Beliefs",
    "BestPlayer",
    "Claim",
    "Evidence",
    "ExploreEnv",
    "Inform",
    "Move",
    "Plan",
    "RandomPlayer",
    "Worth",
    "trial_weights",
    "worth",
]
