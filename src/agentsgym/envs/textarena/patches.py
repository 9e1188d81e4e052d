"""Patches for bugs in TextArena 0.7.4's games, each with the bug that it fixes."""

import re
from collections.abc import Callable
from types import MethodType
from typing import Any

from agentsgym.envs.textarena.games import Game

_DIRECTIONS = frozenset({"up", "down", "left", "right", "w", "a", "s", "d"})
_MOVING = frozenset({"go", "i", "move", "press", "push", "slide", "swipe", "the", "tiles"})
PROGRESS_METHODS = ("_get_percentage_completion", "_progress", "_calculate_progress")


def patch(name: str, raw: Any) -> None:
    """Patch a game that was just reset.

    Countdown, Cryptarithm, Slitherlink and ThreeCardMonte swap the arguments of
    `set_invalid_move`, so that the reward is a sentence and the reason a number. FifteenPuzzle
    reports a win through `set_winners`, which its state does not have, so that a win crashes.
    """
    state = raw.state
    state.set_invalid_move = MethodType(_in_order(type(state).set_invalid_move), state)
    if name == "FifteenPuzzle":
        state.set_winners = MethodType(_set_winners, state)


def _in_order(original: Callable[..., None]) -> Callable[..., None]:
    def set_invalid_move(state: Any, reason: Any = None, reward: Any = -1.0) -> None:
        if isinstance(reward, str):
            reason, reward = reward, reason
        original(state, reason=reason, reward=reward)

    return set_invalid_move


def _set_winners(state: Any, player_ids: list[int], reason: str) -> None:
    state.set_outcome(reward=1.0, reason=reason)


def admissible(name: str, move: str) -> str:
    """The move, or "" if the game would wrongly accept it.

    Set accepts the same card three times as a set, so that `[1, 1, 1]` scores at every turn. 2048
    takes the last word of any sentence that is a direction or one of the letters w, a, s and d, so
    that "What's your move?" moves down.
    """
    if name == "2048" and not _is_one_direction(move):
        return ""
    if name == "Set":
        cards = [card.strip() for card in move.strip("[]").split(",")]
        if len({card.lstrip("0") for card in cards}) != len(cards):
            return ""
    return move


def _is_one_direction(move: str) -> bool:
    words = [word for word in re.findall(r"\w+", move.lower()) if word not in _MOVING]
    return len(words) == 1 and words[0] in _DIRECTIONS


def outcome(game: Game, raw: Any, reward: Any) -> float:
    """The reward of a finished game as a float within the game's declared range.

    Bandit never recognizes the best button (it compares a name with a table) and pays the regret
    of the final choice, so that the best button earns 0 and a worse one more. Here the best button
    earns 1.0 and any other 1.0 minus its regret. LightsOut's progress has no lower bound when
    lights are switched on.
    Raises TypeError for a reward that is no number.
    """
    if isinstance(reward, bool | str) or reward is None:
        raise TypeError(f"{game.name} paid {reward!r}, which is not a number")
    value = float(reward)
    if game.name == "Bandit" and value >= 0.0:
        value = 1.0 if value == 0.0 else -value
    return min(game.high, max(game.low, value))


def progress(game: Game, raw: Any) -> float:
    """The game's reward if it ended now, by its own measure of progress; 0 without a measure."""
    if game.name == "Set":
        return outcome(game, raw, raw.state.game_state["score"])
    for method in PROGRESS_METHODS:
        if hasattr(raw, method):
            return outcome(game, raw, getattr(raw, method)())
    return 0.0


def playable(name: str, raw: Any) -> bool:
    """Whether a puzzle that was just reset can be solved and is not solved yet.

    FifteenPuzzle shuffles its tiles, and half of all permutations cannot be solved. LightsOut's
    scramble may cancel itself out.
    """
    if name == "FifteenPuzzle":
        return _solvable_fifteen([tile for row in raw.board for tile in row])
    if name == "LightsOut":
        return bool(raw._initial_on)
    return True


def _solvable_fifteen(tiles: list[int | None]) -> bool:
    """Compares the permutation's parity with the gap's row, counted from the bottom."""
    order = [tile for tile in tiles if tile is not None]
    inversions = sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
    row_from_bottom = 4 - tiles.index(None) // 4
    return (inversions + row_from_bottom) % 2 == 1
