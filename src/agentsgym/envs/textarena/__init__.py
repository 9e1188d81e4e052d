"""TextArena's offline single-player games, as environments `TextArena/<Game>`."""

from agentsgym.envs.textarena.env import TextArenaEnv, game_class
from agentsgym.envs.textarena.games import GAMES, ArenaGame

__all__ = ["GAMES", "ArenaGame", "TextArenaEnv", "game_class"]
