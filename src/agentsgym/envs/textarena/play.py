"""A running game: the raw TextArena game, its random numbers, and moves in answers."""

import contextlib
import copy
import importlib
import io
import random
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.action_text import MAX_CHARACTERS, bare, spoken
from agentsgym.envs.textarena.games import Game, moves
from agentsgym.envs.textarena.patches import admissible, outcome, patch, progress

MAX_MOVE_CHARACTERS = 64
MAX_TRIALS = 200
MAX_PUZZLES = 256
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_LOCK = threading.RLock()


class RandomStream:
    """A state of Python's global generator that belongs to one session.

    TextArena's games seed and use the module `random` itself. Code inside `installed` draws from
    this stream; the global state is restored afterwards, also after an exception. Only one thread
    at a time can be inside `installed`; a thread that uses the global generator without a stream
    is not blocked.
    """

    def __init__(self, seed: int) -> None:
        self._state: Any = random.Random(seed).getstate()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make this stream the global generator inside the block."""
        with _LOCK:
            outside = random.getstate()
            random.setstate(self._state)
            try:
                yield
            finally:
                self._state = random.getstate()
                random.setstate(outside)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discard printed output, one thread at a time."""
    with _LOCK, contextlib.redirect_stdout(io.StringIO()):
        yield


class UnplayableSeed(ValueError):
    """TextArena cannot make a puzzle from this seed."""


@dataclass(slots=True)
class Play:
    """A running game.

    `text` is the game's output since the last action. `reward` stays None until the game is done.
    `draws` says whether steps need the session's own random numbers.
    """

    game: Game
    raw: Any
    stream: RandomStream
    draws: bool
    seed: int = 0
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
        move = admissible(self.game.name, move)
        errors = self.raw.state.error_count
        with self._own_world():
            self.done, _ = self.raw.step(move)
        info = self.raw.state.game_info[0]
        self.malformed = self.raw.state.error_count > errors or bool(info["invalid_move"])
        self.move = move
        self.text = new_output(self.raw)
        if self.done:
            self.reward = outcome(self.game, self.raw, self.raw.state.rewards[0])
            self.reason = str(info.get("reason", ""))

    def progress(self) -> float:
        """The reward for the current state by the game's own measure of progress."""
        with self._own_world():
            return progress(self.game, self.raw)

    @contextlib.contextmanager
    def _own_world(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.game.prints:
                stack.enter_context(silenced())
            if self.draws:
                stack.enter_context(self.stream.installed())
            yield


def new_output(raw: Any) -> str:
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


@dataclass(frozen=True, slots=True)
class Fresh:
    """A game after its reset and before the first move, with its random numbers."""

    raw: Any
    stream: RandomStream


PUZZLES: OrderedDict[tuple[str, str, int], Fresh] = OrderedDict()
"""The last puzzles of slow games, by variant, options and seed; all environments share them."""


def deal(game: Game, env_id: str, options: Mapping[str, Any], seed: int) -> Fresh:
    """A new game; a copy of the stored one if games of this kind take long to make.

    Raises UnplayableSeed if TextArena cannot make one.
    """
    if not game.slow:
        return _dealt(game, env_id, options, seed)
    key = (env_id, repr(sorted(options.items())), seed)
    with _LOCK:
        if key not in PUZZLES:
            PUZZLES[key] = _dealt(game, env_id, options, seed)
        PUZZLES.move_to_end(key)
        if len(PUZZLES) > MAX_PUZZLES:
            PUZZLES.popitem(last=False)
        return copy.deepcopy(PUZZLES[key])


def _dealt(game: Game, env_id: str, options: Mapping[str, Any], seed: int) -> Fresh:
    """Make and reset a game inside a new random stream, because RushHour and Countdown draw their
    puzzles in the constructor."""
    textarena = importlib.import_module("textarena")
    stream = RandomStream(seed)
    with silenced(), stream.installed():
        raw = textarena.make(env_id, **options)
        try:
            raw.reset(num_players=1, seed=seed)
        except (ZeroDivisionError, RuntimeError) as error:
            raise UnplayableSeed(f"{env_id} cannot deal seed {seed}: {error}") from error
    if game.name == "Set":
        raw.all_sets = None  # 6,480 tuples that no step reads
    return Fresh(raw, stream)


def begin(game: Game, fresh: Fresh, *, error_allowance: int, draws: bool) -> Play:
    """Start to play a dealt game."""
    fresh.raw.state.error_allowance = error_allowance
    patch(game.name, fresh.raw)
    return Play(game, fresh.raw, fresh.stream, draws, text=new_output(fresh.raw))


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


def example_move(play: Play) -> str:
    """The first listed move that the game accepts, if possible one that does not end it.

    Moves are trial on copies of the game. Crosswords and Sudoku accept only right letters and
    digits, so in these two games the example fills one cell.
    """
    listed = moves(play.game.name, play.raw)
    accepted = ""
    for move in listed[:MAX_TRIALS]:
        trial = copy.deepcopy(play)
        trial.step(move)
        if not trial.malformed:
            accepted = accepted or move
            if not trial.done:
                return move
    return accepted or listed[0]
