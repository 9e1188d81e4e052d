"""A table of facts about each game. It imports nothing, in particular not TextArena."""

from dataclasses import dataclass

TESTED_VERSION = "0.7.4"
"""The TextArena version for which the `draws` and `prints` columns below were checked."""


@dataclass(frozen=True, slots=True)
class Game:
    """One of TextArena's games.

    Attributes:
        name: TextArena's name of the game, and the second part of the environment's name.
        steps: default `max_steps_per_episode` of the default variant.
        variants: TextArena's suffixes (`Mastermind-v0-hard` is "hard"); "" is the default one.
        low, high: bounds of an episode's reward. Rewards outside are clamped to them.
        best: reward of perfect play if every task of the default variant can be solved, else
            None.
        wins: whether a reward of 1.0 means that the game was won.
        draws: whether a step draws random numbers (a reset always may).
        prints: whether the game writes to standard output.
        one_puzzle: whether every seed gives the same puzzle.
        slow: whether a reset is slow enough to be cached.
        spare_steps: steps beyond the game's own number of turns, for malformed actions, which
            count as steps of the episode but not as turns of the game.
    """

    name: str
    steps: int
    variants: tuple[str, ...] = ("",)
    low: float = 0.0
    high: float = 1.0
    best: float | None = None
    wins: bool = True
    draws: bool = False
    prints: bool = False
    one_puzzle: bool = False
    slow: bool = False
    spare_steps: int = 0


_TILES = ("", "ultra-easy", "mega-easy", "super-easy", "very-easy", "easy", "hard", "very-hard")
_DISKS = ("", "medium", "hard", "hardcore", "extreme")

_ALL = (
    Game("2048", 300, _TILES, draws=True),
    Game("Bandit", 25, ("", "hard"), low=-1.0, draws=True, spare_steps=4),
    Game("Blackjack", 60, ("", "long"), wins=False, draws=True),
    Game("Countdown", 12, ("", "random"), best=1.0, one_puzzle=True),
    Game("Crosswords", 30, ("", "hardcore")),
    Game("Cryptarithm", 100, best=1.0, one_puzzle=True),
    Game("FifteenPuzzle", 200),
    Game("FrozenLake", 100, ("", "random", "hardcore"), best=1.0),
    Game("GuessTheNumber", 10, ("", "hardcore"), best=1.0),
    Game("LightsOut", 20, low=-1.0, best=1.0),
    Game("LogicPuzzle", 30, ("", "hard"), prints=True),
    Game("Mastermind", 20, ("", "hard", "extreme"), best=1.0),
    Game("Minesweeper", 100, ("", "small", "medium", "hard"), draws=True),
    Game("PegJump", 20, best=1.0, one_puzzle=True),
    Game("RushHour", 100, prints=True, slow=True),
    Game("Secretary", 7, ("", "long"), low=-1.0, spare_steps=2),
    Game("Set", 24, high=20.0, wins=False, slow=True),
    Game("Slitherlink", 200, best=1.0),
    Game("Sokoban", 30, ("", "medium"), slow=True),
    Game("Sudoku", 100, ("", "very-easy", "easy", "medium", "hard"), best=1.0, slow=True),
    Game("ThreeCardMonte", 3, best=1.0),
    Game("TowerOfHanoi", 14, _DISKS, best=1.0, one_puzzle=True),
)

GAMES: dict[str, Game] = {game.name: game for game in _ALL}
