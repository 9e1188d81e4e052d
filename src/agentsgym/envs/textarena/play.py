"""One game being played: the raw TextArena game, its random numbers and what it said last."""

import contextlib
import copy
import importlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.textarena.games import Game
from agentsgym.envs.textarena.randomness import RandomStream, silenced
from agentsgym.envs.textarena.repairs import admissible, outcome, progress, repair


class UnplayableSeed(ValueError):
    """TextArena fails to make a puzzle from this seed."""


@dataclass(slots=True)
class Play:
    """A running game.

    `text` is what the game said since the last action. `reward` stays None until the game is
    done. `draws` says whether steps need the session's own random numbers.
    """

    game: Game
    raw: Any
    stream: RandomStream
    draws: bool
    text: str = ""
    done: bool = False
    malformed: bool = False
    reward: float | None = None
    reason: str = ""
    move: str = ""

    def step(self, move: str) -> None:
        """Make one move ("" for a malformed action); a game that is done stays as it is."""
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
        """What the game's own measure of progress pays for where it stands."""
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
    """What the game said since it was last asked, the player's own words left out.

    Countdown, Cryptarithm and Slitherlink log an action with the number 0 for the text and the
    action for the kind of message: what is not of a known kind is the player's too.
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
    """A game that was reset and not played yet, and the random numbers it goes on with."""

    raw: Any
    stream: RandomStream

    def copy(self) -> "Fresh":
        """The same puzzle once more."""
        return Fresh(copy.deepcopy(self.raw), self.stream.copy())


def deal(game: Game, env_id: str, options: Mapping[str, Any], seed: int) -> Fresh:
    """Make and reset a game. Raises UnplayableSeed where TextArena cannot.

    A game is made anew for each episode and inside the session's stream: RushHour and Countdown
    draw their puzzles when they are made.
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
    """Puzzles that took long to make, kept to be copied: the last 256 that were asked for.

    A puzzle depends on the game, its options and the seed alone, so environments share them.
    """

    SIZE = 256

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Fresh] = OrderedDict()
        self._lock = threading.Lock()

    def deal(self, game: Game, env_id: str, options: Mapping[str, Any], seed: int) -> Fresh:
        """A copy of the puzzle, made where it is not there yet; see `deal`."""
        key = (env_id, repr(sorted(options.items())), seed)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = deal(game, env_id, options, seed)
            self._kept.move_to_end(key)
            if len(self._kept) > self.SIZE:
                self._kept.popitem(last=False)
            return self._kept[key].copy()

    def clear(self) -> None:
        """Forget all puzzles."""
        with self._lock:
            self._kept.clear()


KEPT = Shelf()
"""The shelf of this process."""


def begin(game: Game, fresh: Fresh, *, error_allowance: int, draws: bool) -> Play:
    """Start to play a game that was dealt."""
    fresh.raw.state.error_allowance = error_allowance
    repair(game.name, fresh.raw)
    return Play(game, fresh.raw, fresh.stream, draws, text=heard(fresh.raw))
