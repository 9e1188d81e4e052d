"""Explore: games in which exploring costs an episode and pays in later ones, with exact scores."""

from agentsgym.envs.exploration.agents import ExploreOptimalAgent, ExploreTeacher
from agentsgym.envs.exploration.beliefs import Beliefs, Evidence
from agentsgym.envs.exploration.env import ExploreEnv
from agentsgym.envs.exploration.plan import Claim, Inform, Move, Plan, trial_weights
from agentsgym.envs.exploration.players import BestPlayer, RandomPlayer
from agentsgym.envs.exploration.worth import Worth, worth

__all__ = [
    "Beliefs",
    "BestPlayer",
    "Claim",
    "Evidence",
    "ExploreEnv",
    "ExploreOptimalAgent",
    "ExploreTeacher",
    "Inform",
    "Move",
    "Plan",
    "RandomPlayer",
    "Worth",
    "trial_weights",
    "worth",
]
