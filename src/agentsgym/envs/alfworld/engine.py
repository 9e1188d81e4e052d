"""Games played in the real engine (`textworld` with `alfworld`'s wrappers), with our checks of
expressions and the speed patch during each call."""

import weakref
from functools import cache, partial
from inspect import getattr_static
from typing import Any

from agentsgym.envs.alfworld.safety import CheckedPlanner, check_game, safe_expressions
from agentsgym.envs.alfworld.speed import speed_patch
from agentsgym.envs.command_game import CommandGame, Replacements, anchor, contained
from agentsgym.envs.extras import require

NOTHING = "Nothing happens."
_IDLE: list[Any] = []
"""Engines that no game uses. One costs 34 MB of disk reads and is never unloaded, so engines are
reused."""


@cache
def _replacements(fast: bool) -> Replacements:
    ours = [*safe_expressions(), *(speed_patch() if fast else ())]
    return [(owner, name, getattr_static(owner, name), value) for owner, name, value in ours]


def _new_engine() -> Any:
    textworld = require("textworld", "alfworld")
    wrappers = require("alfworld.agents.environment.alfred_tw_env", "alfworld")
    engine = textworld.envs.PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
    engine.downward_lib = CheckedPlanner(engine.downward_lib)
    return wrappers.AlfredInfos(wrappers.AlfredDemangler(engine))


class HouseholdGame(CommandGame):
    """A running game. `fast=False` disables the speed patch, but not our checks.

    `plan_length` is the number of commands left in the planner's plan, where a caller counts it.
    Raises MissingExtra if the engine is not installed, RefusedGame for a game that might do harm.
    """

    plan_length = 0

    def __init__(self, game_file: str, *, fast: bool = True) -> None:
        self._contained = partial(contained, partial(_replacements, fast))
        with self._contained():
            self._engine = _IDLE.pop() if _IDLE else _new_engine()
            weakref.finalize(self, _IDLE.append, self._engine).atexit = False
            self._engine.request_infos.policy_commands = False
            check_game(game_file)
            self._engine.load(game_file)
            self._read(self._engine.reset())

    def step(self, command: str) -> None:
        """Send a command; one that is not admissible gets the answer `NOTHING`."""
        with self._contained():
            self._read(self._engine.step(command)[0])

    def plan(self) -> tuple[str, ...]:
        """The planner's commands from here to the win; empty if it is won or cannot be won."""
        with self._contained():
            self._engine.request_infos.policy_commands = True
            state, _, _ = self._engine.step("")  # changes nothing
            self._engine.request_infos.policy_commands = False
        return tuple(state["policy_commands"])

    def _read(self, state: Any) -> None:
        self.text = state["feedback"]
        self.commands = tuple(state["admissible_commands"])
        self.won = bool(state["won"])
        self.anchor = anchor(state["_facts"])


def solve(game_file: str) -> tuple[str, ...] | None:
    """The planner's commands that win a game, verified by playing them; None if there are none."""
    game = HouseholdGame(game_file)
    plan = game.plan()
    for command in plan:
        game.step(command)
        if game.text == NOTHING:
            return None
    return plan if game.won else None
