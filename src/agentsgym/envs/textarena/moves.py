"""The moves that a game accepts in its current state: for scripted players and checks."""

import itertools
import string
from collections.abc import Callable, Iterable
from typing import Any

MOST_MOVES = 5000
_DIRECTIONS = ("up", "down", "left", "right")


def moves(name: str, raw: Any) -> list[str]:
    """All moves of the right form, without moves known to be useless now; at most 5,000.

    The game's rules may still refuse some of them (a blocked car, a wrong letter).
    """
    listed = (f"[{move}]" for move in _MOVES[name](raw))
    return list(itertools.islice(listed, MOST_MOVES))


def _words(*words: str) -> Callable[[Any], Iterable[str]]:
    return lambda raw: words


def _countdown(raw: Any) -> Iterable[str]:
    pairs = itertools.permutations(range(len(raw.numbers)), 2)
    return (f"{i} {j} {op}" for i, j in pairs for op in "+-*/")


def _crosswords(raw: Any) -> Iterable[str]:
    board = raw.state.game_state["board"]
    blanks = [(r, c) for r, row in enumerate(board) for c, cell in enumerate(row) if cell == "_"]
    return (f"{r} {c} {letter}" for r, c in blanks for letter in string.ascii_uppercase)


def _cryptarithm(raw: Any) -> Iterable[str]:
    return (f"{letter} {digit}" for letter in sorted(raw.letters) for digit in range(10))


def _logic_puzzle(raw: Any) -> Iterable[str]:
    cells = [
        (row, column) for grid in raw.game_board.values() for row in grid for column in grid[row]
    ]
    return (f"{row} {column} {mark}" for row, column in cells for mark in "OX")


def _mastermind(raw: Any) -> Iterable[str]:
    digits = range(1, raw.num_numbers + 1)
    codes = (
        itertools.product(digits, repeat=raw.code_length)
        if raw.duplicate_numbers
        else itertools.permutations(digits, raw.code_length)
    )
    return (" ".join(map(str, code)) for code in codes)


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
    "2048": _words(*_DIRECTIONS),
    "Bandit": lambda raw: raw.buttons,
    "Blackjack": _words("hit", "stand"),
    "Countdown": _countdown,
    "Crosswords": _crosswords,
    "Cryptarithm": _cryptarithm,
    "FifteenPuzzle": _words(*_DIRECTIONS),
    "FrozenLake": _words(*_DIRECTIONS),
    "GuessTheNumber": lambda raw: map(str, range(raw.min_number, raw.max_number + 1)),
    "LightsOut": lambda raw: (f"{r} {c}" for r in range(raw.size) for c in range(raw.size)),
    "LogicPuzzle": _logic_puzzle,
    "Mastermind": _mastermind,
    "Minesweeper": _minesweeper,
    "PegJump": _peg_jump,
    "RushHour": lambda raw: (
        f"{car}{way}" for car in sorted(raw.state.game_state["vehicles"]) for way in "+-"
    ),
    "Secretary": _words("accept", "continue"),
    "Set": _set,
    "Slitherlink": _slitherlink,
    "Sokoban": _words(*_DIRECTIONS),
    "Sudoku": _sudoku,
    "ThreeCardMonte": lambda raw: map(str, range(raw.num_cups)),
    "TowerOfHanoi": _hanoi,
}
