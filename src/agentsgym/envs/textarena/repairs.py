"""What is mended in TextArena 0.7.4's games, each with the fault that it answers."""

from collections.abc import Callable
from types import MethodType
from typing import Any

from agentsgym.envs.textarena.games import Game

PROGRESS_METHODS = ("_get_percentage_completion", "_progress", "_calculate_progress")


def repair(name: str, raw: Any) -> None:
    """Mend a game that was just reset.

    Countdown, Cryptarithm, Slitherlink and ThreeCardMonte swap the arguments of
    `set_invalid_move`, so that the reward is a sentence and the reason a number. FifteenPuzzle
    announces a win through `set_winners`, which its state lacks, so that solving it crashes.
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
    """The move, or "" where the game would accept what is no move.

    Set takes the same card three times for a set, so that `[1, 1, 1]` scores at every turn.
    """
    if name == "Set":
        cards = [card.strip() for card in move.strip("[]").split(",")]
        if len({card.lstrip("0") for card in cards}) != len(cards):
            return ""
    return move


def outcome(game: Game, raw: Any, reward: Any) -> float:
    """The reward of a finished game as a float within the game's declared range.

    Bandit never finds the right button right (it compares a name with a table) and pays the
    regret of every final choice, so that the best button earns 0 and a worse one more. Here the
    best earns 1.0 and another loses its regret. LightsOut's progress falls without a bound when
    lights are switched on.
    Raises TypeError for a reward that is no number.
    """
    if isinstance(reward, bool | str) or reward is None:
        raise TypeError(f"{game.name} paid {reward!r}, which is no number")
    value = float(reward)
    if game.name == "Bandit" and value >= 0.0:
        value = 1.0 if value == 0.0 else -value
    return min(game.high, max(game.low, value))


def progress(game: Game, raw: Any) -> float:
    """What the game would pay if it ended now: its own measure of progress, else nothing."""
    if game.name == "Set":
        return outcome(game, raw, raw.state.game_state["score"])
    for method in PROGRESS_METHODS:
        if hasattr(raw, method):
            return outcome(game, raw, getattr(raw, method)())
    return 0.0


def playable(name: str, raw: Any) -> bool:
    """Whether a puzzle that was just reset can be solved and is not solved yet.

    FifteenPuzzle shuffles its tiles, and half of all permutations cannot be solved. LightsOut's
    scramble may undo itself.
    """
    if name == "FifteenPuzzle":
        return _solvable_fifteen([tile for row in raw.board for tile in row])
    if name == "LightsOut":
        return bool(raw._initial_on)
    return True


def _solvable_fifteen(tiles: list[int | None]) -> bool:
    """Parity of the permutation against the row of the gap, counted from the bottom."""
    order = [tile for tile in tiles if tile is not None]
    inversions = sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
    row_from_bottom = 4 - tiles.index(None) // 4
    return (inversions + row_from_bottom) % 2 == 1
