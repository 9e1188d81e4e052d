"""A running game: the raw TextArena game, its random numbers and its last output."""

import contextlib
import copy
import importlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.textarena.games import Game
from agentsgym.envs.textarena.patches import admissible, outcome, patch, progress
from agentsgym.envs.textarena.randomness import RandomStream, silenced


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
        self.text = heard(self.raw)
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


def heard(raw: Any) -> str:
    """The game's output since the last call, without the player's own words.

    Countdown, Cryptarithm and Slitherlink log an action as the number 0, with the action as the
    message type: messages of an unknown type are therefore the player's too.
    """
    kinds = importlib.import_module("textarena").ObservationType
    _, observations = raw.get_observation()
    said = [
        str(text).strip()
        for _, text, kind in observations
        if isinstance(kind, kinds) and kind != kinds.PLAYER_ACTION
    ]
    return "\n".join(text for text in said if text)


@dataclass(frozen=True, slots=True)
class Fresh:
    """A game after its reset and before the first move, with its random numbers."""

    raw: Any
    stream: RandomStream

    def copy(self) -> "Fresh":
        """A second game with the same puzzle."""
        return Fresh(copy.deepcopy(self.raw), self.stream.copy())


def deal(game: Game, env_id: str, options: Mapping[str, Any], seed: int) -> Fresh:
    """Make and reset a game. Raises UnplayableSeed if TextArena cannot.

    Each episode makes a new game inside the session's random stream, because RushHour and
    Countdown draw their puzzles in the constructor.
    """
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


class Shelf:
    """A cache of puzzles that take long to make: the last 256 that were requested.

    A puzzle depends only on the game, its options and the seed, so environments share the cache.
    """

    SIZE = 256

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Fresh] = OrderedDict()
        self._lock = threading.Lock()

    def deal(self, game: Game, env_id: str, options: Mapping[str, Any], seed: int) -> Fresh:
        """A copy of the puzzle, which is made if it is not cached; see `deal`."""
        key = (env_id, repr(sorted(options.items())), seed)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = deal(game, env_id, options, seed)
            self._kept.move_to_end(key)
            if len(self._kept) > self.SIZE:
                self._kept.popitem(last=False)
            return self._kept[key].copy()

    def clear(self) -> None:
        """Drop all puzzles."""
        with self._lock:
            self._kept.clear()


KEPT = Shelf()
"""The cache of this process."""


def begin(game: Game, fresh: Fresh, *, error_allowance: int, draws: bool) -> Play:
    """Start to play a dealt game."""
    fresh.raw.state.error_allowance = error_allowance
    patch(game.name, fresh.raw)
    return Play(game, fresh.raw, fresh.stream, draws, text=heard(fresh.raw))
