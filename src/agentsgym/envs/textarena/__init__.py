"""TextArena's offline single-player games, as environments `TextArena/<Game>`."""

from agentsgym.envs.textarena.env import TextArenaEnv, game_class
from agentsgym.envs.textarena.games import GAMES, Game

__all__ = ["GAMES", "Game", "TextArenaEnv", "game_class"]
