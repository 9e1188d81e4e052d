"""Explore: games in which exploring costs an episode and pays in later ones, with exact scores."""

from agentsgym.envs.exploration.best_play import BestPlayer, Claim, Inform, Plan
from agentsgym.envs.exploration.env import ExploreEnv
from agentsgym.envs.exploration.many import ExploreManyEnv

__all__ = ["BestPlayer", "Claim", "ExploreEnv", "ExploreManyEnv", "Inform", "Plan"]
