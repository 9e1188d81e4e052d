"""Games played in the real engine (`textworld` with `alfworld`'s wrappers).

The engine shares one parser between all games, so it fails with several threads. It overwrites
`sys.argv` permanently and `sys.stdout` while it translates, importing `alfworld` sets
`ALFWORLD_DATA`, and it runs expressions in a game file as Python. All calls into it go through
`contained`, which also installs our evaluator and the speed patch for the duration of the call.
Other users of `textworld` in this process see the unchanged engine.
"""

import hashlib
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from inspect import getattr_static
from typing import Any

from agentsgym.envs.alfworld.safety import CheckedPlanner, check_game, safe_expressions
from agentsgym.envs.alfworld.speed import speed_patch
from agentsgym.envs.extras import require

NOTHING = "Nothing happens."
_LOCK = threading.Lock()


@cache
def _replacements(fast: bool) -> list[tuple[Any, str, Any, Any]]:
    """Module or class, attribute, the engine's own value, and ours."""
    ours = [*safe_expressions(), *(speed_patch() if fast else ())]
    return [(owner, name, getattr_static(owner, name), value) for owner, name, value in ours]


@contextmanager
def contained(*, fast: bool = True) -> Iterator[None]:
    """Hold the engine's lock; restore `sys.argv`, `sys.stdout` and `ALFWORLD_DATA` afterwards.

    With `fast=False` the engine runs without the speed patch, but still with our evaluator.
    """
    with _LOCK:
        argv, stdout, data = sys.argv, sys.stdout, os.environ.get("ALFWORLD_DATA")
        replacements = _replacements(fast)
        try:
            for owner, name, _, ours in replacements:
                setattr(owner, name, ours)
            yield
        finally:
            for owner, name, stock, _ in replacements:
                setattr(owner, name, stock)
            sys.argv, sys.stdout = argv, stdout
            _restore_data(data)


def _restore_data(value: str | None) -> None:
    if value is None:
        os.environ.pop("ALFWORLD_DATA", None)
    else:
        os.environ["ALFWORLD_DATA"] = value


@dataclass(frozen=True, slots=True)
class View:
    """The engine's output after a command.

    `commands` are the admissible commands, sorted; `anchor` is equal for equal states of the world;
    `plan` is the planner's list of commands from here to the win, None if not requested.
    """

    text: str
    commands: tuple[str, ...]
    won: bool
    anchor: str = ""
    plan: tuple[str, ...] | None = None


class Engine:
    """One instance of the engine, which plays one game after another.

    `fast=False` disables the speed patch. Raises MissingExtra if the engine is not installed.
    """

    def __init__(self, *, fast: bool = True) -> None:
        self._fast = fast
        textworld = require("textworld", "alfworld")
        with contained(fast=fast):
            wrappers = require("alfworld.agents.environment.alfred_tw_env", "alfworld")
            self._infos = textworld.EnvInfos(won=True, admissible_commands=True)
            stock = textworld.envs.PddlEnv(self._infos)
            stock.downward_lib = CheckedPlanner(stock.downward_lib)
            self._env = wrappers.AlfredInfos(wrappers.AlfredDemangler(stock))

    def start(self, game_file: str, *, planning: bool = False) -> View:
        """Load and start a game. Raises RefusedGame."""
        with contained(fast=self._fast):
            self._infos.policy_commands = planning
            check_game(game_file)
            self._env.load(game_file)
            return self._view(self._env.reset(), planning)

    def step(self, command: str, *, planning: bool = False) -> View:
        """Send a command."""
        with contained(fast=self._fast):
            self._infos.policy_commands = planning
            state, _, _ = self._env.step(command)
            return self._view(state, planning)

    def _view(self, state: Any, planning: bool) -> View:
        return View(
            text=state["feedback"],
            commands=tuple(state["admissible_commands"]),
            won=bool(state["won"]),
            anchor=anchor(state["_facts"]),
            plan=tuple(state["policy_commands"]) if planning else None,
        )


_IDLE: list[Engine] = []
"""Engines that no game uses. One costs 34 MB of disk reads and is never unloaded, so engines are
reused."""


class Game:
    """A running game, with the commands given so far."""

    def __init__(self, game_file: str, *, planning: bool = False) -> None:
        self.game_file = game_file
        self.planning = planning
        self.played: list[str] = []
        self._engine = _take()
        weakref.finalize(self, _IDLE.append, self._engine).atexit = False
        self.view = self._engine.start(game_file, planning=planning)

    def step(self, command: str) -> View:
        """Send a command."""
        self.view = self._engine.step(command, planning=self.planning)
        self.played.append(command)
        return self.view

    def plan(self) -> tuple[str, ...]:
        """The planner's commands from here to the win; empty if it is won or cannot be won."""
        if self.view.plan is None:
            replayed = replay(self.game_file, self.played, planning=True)
            self.view = replayed.view
        assert self.view.plan is not None
        return self.view.plan


def _take() -> Engine:
    try:
        return _IDLE.pop()
    except IndexError:
        return Engine()


def replay(game_file: str, commands: Sequence[str], *, planning: bool = False) -> Game:
    """The game after these commands. With `planning`, only the last view has a plan."""
    game = Game(game_file, planning=planning and not commands)
    for number, command in enumerate(commands, 1):
        game.planning = planning and number == len(commands)
        game.step(command)
    return game


def solve(game_file: str) -> tuple[str, ...] | None:
    """The planner's commands that win a game, verified by playing them; None if there are none."""
    game = Game(game_file, planning=True)
    plan = game.plan()
    game.planning = False
    for command in plan:
        if game.step(command).text == NOTHING:
            return None
    return plan if game.view.won else None


_EXAMINATIONS = frozenset({"checked", "examined"})
"""Facts that record past examinations and do not affect the world. Negated facts are ignored too:
the engine keeps them for facts that were once true, so they describe the history, not the state."""


def anchor(facts: Iterable[Any]) -> str:
    """16 hexadecimal digits that depend only on the set of facts, not on order or hash seed."""
    digest = 0
    for fact in facts:
        if fact.name not in _EXAMINATIONS and not fact.is_negation:
            digest ^= _fact_digest(fact)
    return f"{digest:016x}"


@lru_cache(maxsize=1 << 16)
def _fact_digest(fact: Any) -> int:
    return int.from_bytes(hashlib.blake2b(str(fact).encode(), digest_size=8).digest(), "big")
