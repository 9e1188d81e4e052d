"""A running game of TextArena: its random numbers, moves in answers, and patches for bugs."""

import contextlib
import copy
import importlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MethodType
from typing import Any

from agentsgym.envs.action_text import MAX_CHARACTERS, bare, spoken
from agentsgym.envs.randomness import GlobalRandomness
from agentsgym.envs.textarena.games import ArenaGame, legal_moves
from agentsgym.types.foreign import checked_number

MAX_MOVE_CHARACTERS = 64
MAX_TRIALS = 200
MAX_PUZZLES = 256
"""Puzzles of slow games that are kept; all environments share them."""
_DIRECTIONS = frozenset({"up", "down", "left", "right", "w", "a", "s", "d"})
_MOVING = frozenset({"go", "i", "move", "press", "push", "slide", "swipe", "the", "tiles"})
PROGRESS_METHODS = ("_get_percentage_completion", "_progress", "_calculate_progress")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")


@contextlib.contextmanager
def drawing(stream: GlobalRandomness) -> Iterator[None]:
    """Let a game draw from its own random numbers, and discard what it prints. TextArena's games
    seed and use the module `random` itself."""
    with stream.installed(), contextlib.redirect_stdout(io.StringIO()):
        yield


class UnplayableSeed(ValueError):
    """TextArena cannot make a puzzle from this seed."""


@dataclass(slots=True)
class ArenaPlay:
    """A running game.

    `text` is the game's output since the last action. `reward` stays None until the game is done.
    """

    game: ArenaGame
    raw: Any
    stream: GlobalRandomness
    seed: int
    text: str = ""
    done: bool = False
    malformed: bool = False
    reward: float | None = None
    reason: str = ""
    move: str = ""

    def step(self, move: str) -> None:
        """Make one move ("" for a malformed action); a finished game does not change."""
        if self.done:
            return
        move = _admissible(self.game.name, move)
        errors = self.raw.state.error_count
        with drawing(self.stream):
            self.done, _ = self.raw.step(move)
        info = self.raw.state.game_info[0]
        self.malformed = self.raw.state.error_count > errors or bool(info["invalid_move"])
        self.move = move
        self.text = _new_output(self.raw)
        if self.done:
            self.reward = _outcome(self.game, self.raw.state.rewards[0])
            self.reason = str(info.get("reason", ""))

    def progress(self) -> float:
        """The reward for the current state by the game's own measure of progress."""
        with drawing(self.stream):
            return _progress(self.game, self.raw)


def _new_output(raw: Any) -> str:
    """The game's output since the last call, without the player's own words.

    Countdown, Cryptarithm and Slitherlink log an action as the number 0, with the action as the
    message type: messages of an unknown type are therefore the player's too.
    """
    kinds = importlib.import_module("textarena").ObservationType
    _, observations = raw.get_observation()
    texts = [
        str(text).strip()
        for _, text, kind in observations
        if isinstance(kind, kinds) and kind != kinds.PLAYER_ACTION
    ]
    return "\n".join(text for text in texts if text)


def begin(game: ArenaGame, env_id: str, options: Mapping[str, Any], seed: int) -> ArenaPlay:
    """A new game; a copy of a kept one if games of this kind take long to make.

    Raises UnplayableSeed if TextArena cannot make one.
    """
    deal = kept_deal if game.slow else _deal
    raw, stream = deal(game, env_id, json.dumps(options), seed)
    if game.slow:
        raw, stream = copy.deepcopy((raw, stream))
    _patch(game.name, raw)
    return ArenaPlay(game, raw, stream, seed, text=_new_output(raw))


def _deal(game: ArenaGame, env_id: str, options: str, seed: int) -> tuple[Any, GlobalRandomness]:
    """Make and reset a game inside a new random stream, because RushHour and Countdown draw their
    puzzles in the constructor."""
    textarena = importlib.import_module("textarena")
    stream = GlobalRandomness(seed)
    with drawing(stream):
        raw = textarena.make(env_id, **json.loads(options))
        try:
            raw.reset(num_players=1, seed=seed)
        except (ZeroDivisionError, RuntimeError) as error:
            raise UnplayableSeed(f"{env_id} cannot deal seed {seed}: {error}") from error
    if game.name == "Set":
        raw.all_sets = None  # 6,480 tuples that no step reads
    return raw, stream


kept_deal = lru_cache(MAX_PUZZLES)(_deal)


def last_move(action: str) -> str:
    """The last `[...]` of an action, ignoring thoughts before `</think>`; "" if there is no move.

    An action without any bracket is put into brackets, as TextArena's own wrapper does, without
    quotes, a leading "Action:" and the like (see `bare`). A move is
    at most 64 characters of printable ASCII, and an action longer than 4,000 characters is no
    move: games pass the text in the brackets to `int`, which raises for a superscript digit and
    for five thousand nines.
    """
    if len(action) > MAX_CHARACTERS:
        return ""
    text = spoken(action)
    brackets = _BRACKETS.findall(text)
    if brackets:
        move: str = brackets[-1]
    elif text and "[" not in text and "]" not in text:
        move = f"[{bare(text)}]"
    else:
        return ""
    usable = len(move) <= MAX_MOVE_CHARACTERS and move.isascii() and move.isprintable()
    return move if usable else ""


def example_move(play: ArenaPlay) -> str:
    """The first listed move that the game accepts, if possible one that does not end it.

    Moves are trial on copies of the game. Crosswords and Sudoku accept only right letters and
    digits, so in these two games the example fills one cell.
    """
    listed = list(itertools.islice(legal_moves(play.game.name, play.raw), MAX_TRIALS))
    accepted = ""
    for move in listed:
        trial = copy.deepcopy(play)
        trial.step(move)
        if not trial.malformed:
            accepted = accepted or move
            if not trial.done:
                return move
    return accepted or listed[0]


# -- patches, each with the bug that it fixes -----------------------------------------------------


def _patch(name: str, raw: Any) -> None:
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


def _admissible(name: str, move: str) -> str:
    """The move, or "" if the game would wrongly accept it.

    Set accepts the same card three times as a set, so that `[1, 1, 1]` scores at every turn. 2048
    takes the last word of any sentence that is a direction or one of the letters w, a, s and d, so
    that "What's your move?" moves down. TowerOfHanoi moves a disk onto its own tower.
    """
    if name == "2048" and not _is_one_direction(move):
        return ""
    if name == "TowerOfHanoi" and len({*"ABC"} & {*move.upper()}) < 2:
        return ""
    if name == "Set":
        cards = [card.strip() for card in move.strip("[]").split(",")]
        if len({card.lstrip("0") for card in cards}) != len(cards):
            return ""
    return move


def _is_one_direction(move: str) -> bool:
    words = [word for word in re.findall(r"\w+", move.lower()) if word not in _MOVING]
    return len(words) == 1 and words[0] in _DIRECTIONS


def _outcome(game: ArenaGame, reward: Any) -> float:
    """The reward of a finished game as a float within the game's declared range.

    Bandit never recognizes the best button (it compares a name with a table) and pays the regret
    of the final choice, so that the best button earns 0 and a worse one more. Here the best button
    earns 1.0 and any other 1.0 minus its regret. LightsOut's progress has no lower bound when
    lights are switched on.
    Raises ValueError for a reward that is no number.
    """
    value = checked_number(reward, f"what {game.name} pays")
    if game.name == "Bandit" and value >= 0.0:
        value = 1.0 if value == 0.0 else -value
    return min(game.high, max(game.low, value))


def _progress(game: ArenaGame, raw: Any) -> float:
    """The game's reward if it ended now, by its own measure of progress; 0 without a measure."""
    if game.name == "Set":
        return _outcome(game, raw.state.game_state["score"])
    for method in PROGRESS_METHODS:
        if hasattr(raw, method):
            return _outcome(game, getattr(raw, method)())
    return 0.0


def playable(play: ArenaPlay) -> bool:
    """Whether a puzzle that was just reset can be solved and is not solved yet.

    FifteenPuzzle shuffles its tiles, and half of all permutations cannot be solved. LightsOut's
    scramble may cancel itself out.
    """
    if play.game.name == "FifteenPuzzle":
        return _solvable_fifteen([tile for row in play.raw.board for tile in row])
    if play.game.name == "LightsOut":
        return bool(play.raw._initial_on)
    return True


def _solvable_fifteen(tiles: list[int | None]) -> bool:
    """Compares the permutation's parity with the gap's row, counted from the bottom."""
    order = [tile for tile in tiles if tile is not None]
    inversions = sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
    row_from_bottom = 4 - tiles.index(None) // 4
    return (inversions + row_from_bottom) % 2 == 1
