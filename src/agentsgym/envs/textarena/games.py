"""The games: facts about each, and the moves that it accepts.

Imports nothing of TextArena.
"""

import itertools
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MAX_MOVES = 5000
_DIRECTIONS = ("up", "down", "left", "right")


@dataclass(frozen=True, slots=True)
class ArenaGame:
    """One of TextArena's games.

    Attributes:
        name: TextArena's name of the game, and the second part of the environment's name.
        steps: default `max_steps_per_episode` of the default variant.
        variants: TextArena's suffixes (`Mastermind-v0-hard` is "hard"); "" is the default one.
        low, high: bounds of an episode's reward. Rewards outside are clamped to them.
        best: reward of perfect play if every task of the default variant can be solved, else
            None.
        wins: whether a reward of 1.0 means that the game was won.
        one_puzzle: whether every seed gives the same puzzle.
        guesses: whether a wrong guess (a mine, a wrong letter or digit) is an invalid move to
            TextArena, although no player could know it.
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
    one_puzzle: bool = False
    guesses: bool = False
    slow: bool = False
    spare_steps: int = 0


_TILES = ("", "ultra-easy", "mega-easy", "super-easy", "very-easy", "easy", "hard", "very-hard")
_DISKS = ("", "medium", "hard", "hardcore", "extreme")

_ALL = (
    ArenaGame("2048", 300, _TILES),
    ArenaGame("Bandit", 25, ("", "hard"), low=-1.0, spare_steps=4),
    ArenaGame("Blackjack", 60, ("", "long"), wins=False),
    ArenaGame("Countdown", 12, ("", "random"), best=1.0, one_puzzle=True),
    ArenaGame("Crosswords", 30, ("", "hardcore"), guesses=True),
    ArenaGame("Cryptarithm", 100, best=1.0, one_puzzle=True),
    ArenaGame("FifteenPuzzle", 200),
    ArenaGame("FrozenLake", 100, ("", "random", "hardcore"), best=1.0),
    ArenaGame("GuessTheNumber", 10, ("", "hardcore"), best=1.0),
    ArenaGame("LightsOut", 20, low=-1.0, best=1.0),
    ArenaGame("LogicPuzzle", 30, ("", "hard")),
    ArenaGame("Mastermind", 20, ("", "hard", "extreme"), best=1.0),
    ArenaGame("Minesweeper", 100, ("", "small", "medium", "hard"), guesses=True),
    ArenaGame("PegJump", 20, best=1.0, one_puzzle=True),
    ArenaGame("RushHour", 100, slow=True),
    ArenaGame("Secretary", 7, ("", "long"), low=-1.0, spare_steps=2),
    ArenaGame("Set", 24, high=20.0, wins=False, slow=True),
    ArenaGame("Slitherlink", 200, best=1.0),
    ArenaGame("Sokoban", 30, ("", "medium"), slow=True),
    ArenaGame(
        "Sudoku",
        100,
        ("", "very-easy", "easy", "medium", "hard"),
        best=1.0,
        guesses=True,
        slow=True,
    ),
    ArenaGame("ThreeCardMonte", 3, best=1.0),
    ArenaGame("TowerOfHanoi", 14, _DISKS, best=1.0, one_puzzle=True),
)

GAMES: dict[str, ArenaGame] = {game.name: game for game in _ALL}


def moves(name: str, raw: Any) -> list[str] | None:
    """All moves that are legal now, each in one spelling; None if there are more than 5,000.

    A move is legal if the game accepts it, and in games that refuse wrong guesses
    (`ArenaGame.guesses`) also one of which only the solution shows that it is wrong.
    """
    listed = list(itertools.islice(legal_moves(name, raw), MAX_MOVES + 1))
    return listed if len(listed) <= MAX_MOVES else None


def legal_moves(name: str, raw: Any) -> Iterator[str]:
    """The same moves one after another, however many there are."""
    return (f"[{move}]" for move in _MOVES[name](raw))


def _words(*words: str) -> Callable[[Any], Iterable[str]]:
    return lambda raw: words


def _2048(raw: Any) -> Iterable[str]:
    rows = raw.state.game_state["board"]
    columns = [list(column) for column in zip(*rows, strict=True)]
    lines = {
        "up": columns,
        "down": [column[::-1] for column in columns],
        "left": rows,
        "right": [row[::-1] for row in rows],
    }
    return (
        way
        for way in _DIRECTIONS
        if any(raw._compress_and_merge(line[:])[0] != line for line in lines[way])
    )


def _countdown(raw: Any) -> Iterable[str]:
    pairs = itertools.permutations(range(len(raw.numbers)), 2)
    return (
        f"{i} {j} {op}"
        for i, j in pairs
        for op in "+-*/"
        if raw._execute_operation(i, j, op) is not None
    )


def _crosswords(raw: Any) -> Iterable[str]:
    board = raw.state.game_state["board"]
    blanks = [(r, c) for r, row in enumerate(board) for c, cell in enumerate(row) if cell == "_"]
    return (f"{r} {c} {letter}" for r, c in blanks for letter in string.ascii_uppercase)


def _cryptarithm(raw: Any) -> Iterable[str]:
    return (
        f"{letter} {digit}"
        for letter in sorted(raw.letters)
        for digit in range(letter in raw.first_letters, 10)
        if raw.digit_used.get(digit, letter) == letter
    )


def _fifteen(raw: Any) -> Iterable[str]:
    row, column = raw._get_empty_position()
    possible = {"up": row < 3, "down": row > 0, "left": column < 3, "right": column > 0}
    return (way for way in _DIRECTIONS if possible[way])


def _frozen_lake(raw: Any) -> Iterable[str]:
    row, column = raw.state.game_state["player_pos"]
    there = {way: (row + raw.actions[way][0], column + raw.actions[way][1]) for way in _DIRECTIONS}
    return (way for way in _DIRECTIONS if all(0 <= part < raw.size for part in there[way]))


def _guess_the_number(raw: Any) -> Iterable[str]:
    numbers = range(raw.min_number, raw.max_number + 1)
    return (str(number) for number in numbers if number not in raw.guessed_numbers)


def _logic_puzzle(raw: Any) -> Iterable[str]:
    cells = dict.fromkeys(
        (row, column) for grid in raw.game_board.values() for row in grid for column in grid[row]
    )
    return (
        f"{row} {column} {mark}"
        for row, column in cells
        for mark in "OX"
        if not raw._is_repeated_mark(row, column, mark)
    )


def _mastermind(raw: Any) -> Iterable[str]:
    digits = range(1, raw.num_numbers + 1)
    codes = (
        itertools.product(digits, repeat=raw.code_length)
        if raw.duplicate_numbers
        else itertools.permutations(digits, raw.code_length)
    )
    tried = {tuple(entry["guess"]) for entry in raw.state.game_state["history"]}
    return (" ".join(map(str, code)) for code in codes if code not in tried)


def _minesweeper(raw: Any) -> Iterable[str]:
    cells = itertools.product(range(raw.rows), range(raw.cols))
    return (f"{r} {c}" for r, c in cells if not raw.revealed[r][c])


def _peg_jump(raw: Any) -> Iterable[str]:
    board = raw.state.game_state["board"]
    return (
        f"{start} {end}"
        for start, over, end in raw.ALLOWED_MOVES
        if board[start] and board[over] and not board[end]
    )


def _rush_hour(raw: Any) -> Iterable[str]:
    taken = raw._occupied()
    cars = raw.state.game_state["vehicles"]
    return (
        f"{name}{'+' if forward else '-'}"
        for name in sorted(cars)
        for forward in (True, False)
        if _is_free(raw, taken, cars[name], forward)
    )


def _is_free(raw: Any, taken: Any, car: Any, forward: bool) -> bool:
    """Whether a car can move; the red one may leave the board."""
    row, column = car.front(forward)
    size = raw.BOARD_SIZE
    if 0 <= row < size and 0 <= column < size:
        return taken[row][column] is None
    return bool(car.vid == "X" and car.horizontal and forward and column == size)


def _sokoban(raw: Any) -> Iterable[str]:
    return (way for way in _DIRECTIONS if not raw._would_collide_with_wall(way))


def _set(raw: Any) -> Iterable[str]:
    cards = range(1, len(raw.state.game_state["board"]) + 1)
    return (", ".join(map(str, three)) for three in itertools.combinations(cards, 3))


def _slitherlink(raw: Any) -> Iterable[str]:
    across = itertools.product("h", range(raw.R + 1), range(raw.C))
    down = itertools.product("v", range(raw.R), range(raw.C + 1))
    return (f"{kind} {r} {c}" for kind, r, c in itertools.chain(across, down))


def _sudoku(raw: Any) -> Iterable[str]:
    board = raw.state.game_state["board"]
    cells = itertools.product(range(9), range(9))
    blanks = [(r + 1, c + 1) for r, c in cells if board[r][c] == 0]
    return (f"{r} {c} {digit}" for r, c in blanks for digit in range(1, 10))


def _hanoi(raw: Any) -> Iterable[str]:
    towers = raw.state.game_state["towers"]
    return (
        f"{a} {b}"
        for a, b in itertools.permutations(towers, 2)
        if towers[a] and (not towers[b] or towers[b][-1] > towers[a][-1])
    )


_MOVES: dict[str, Callable[[Any], Iterable[str]]] = {
    "2048": _2048,
    "Bandit": lambda raw: raw.buttons,
    "Blackjack": _words("hit", "stand"),
    "Countdown": _countdown,
    "Crosswords": _crosswords,
    "Cryptarithm": _cryptarithm,
    "FifteenPuzzle": _fifteen,
    "FrozenLake": _frozen_lake,
    "GuessTheNumber": _guess_the_number,
    "LightsOut": lambda raw: (f"{r} {c}" for r in range(raw.size) for c in range(raw.size)),
    "LogicPuzzle": _logic_puzzle,
    "Mastermind": _mastermind,
    "Minesweeper": _minesweeper,
    "PegJump": _peg_jump,
    "RushHour": _rush_hour,
    "Secretary": _words("accept", "continue"),
    "Set": _set,
    "Slitherlink": _slitherlink,
    "Sokoban": _sokoban,
    "Sudoku": _sudoku,
    "ThreeCardMonte": lambda raw: map(str, range(raw.num_cups)),
    "TowerOfHanoi": _hanoi,
}
