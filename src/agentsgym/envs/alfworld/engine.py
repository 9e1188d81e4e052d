"""Games played in the real engine (`textworld` with `alfworld`'s wrappers), with our checks of
expressions and the speed patch during each call.

Invariant of the patch: transcripts are those of the unpatched engine, character by character. The
unpatched engine parses the same grammar strings at every step, copies its whole state for every
symbol it expands, and translates a game's PDDL into the planner's format four times per episode.
The patch caches parsed strings and translations, and copies only the parts that are modified. It
supports certain engine versions; with any other version it does nothing and warns.
"""

import copy
import importlib.metadata
import itertools
import warnings
import weakref
from collections.abc import Callable
from functools import cache, lru_cache, partial
from inspect import getattr_static
from typing import Any

from agentsgym.envs.alfworld.safety import CheckedPlanner, check_game, safe_expressions
from agentsgym.envs.command_game import CommandGame, Replacements, anchor, contained
from agentsgym.envs.extras import require

NOTHING = "Nothing happens."
KNOWN_VERSIONS = {"textworld": {"1.7.0"}, "fast-downward-textworld": {"20.6.4"}}
TRANSLATIONS = 64
STRINGS = 4096
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


# -- the speed patch -------------------------------------------------------------------------------


def speed_patch() -> list[tuple[Any, str, Any]]:
    """Replacements (module or class, attribute, value); none for unsupported versions."""
    installed = {package: importlib.metadata.version(package) for package in KNOWN_VERSIONS}
    unknown = [f"{p} {v}" for p, v in sorted(installed.items()) if v not in KNOWN_VERSIONS[p]]
    if unknown:
        warnings.warn(
            f"the ALFWorld speed patch does not support {', '.join(unknown)}; the engine runs "
            "unpatched, about 20 times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return []
    fast_downward = require("fast_downward", "alfworld")
    logic = require("textworld.envs.pddl.logic", "alfworld")
    textgen = require("textworld.envs.pddl.textgen", "alfworld")
    parse = lru_cache(STRINGS)(textgen._parse_and_convert)

    def parse_and_copy(text: str, *, rule_name: str, trace: bool = False) -> Any:
        if trace:
            return parse(text, rule_name=rule_name, trace=trace)
        return [copy_symbol(symbol) for symbol in parse(text, rule_name=rule_name)]

    return [
        (fast_downward, "pddl2sas", lru_cache(TRANSLATIONS)(fast_downward.pddl2sas)),
        (logic, "_parse_and_convert", lru_cache(TRANSLATIONS)(logic._parse_and_convert)),
        (textgen, "_parse_and_convert", parse_and_copy),
        (textgen, "deepcopy", _copier(textgen.Symbol)),
        (textgen, "Rule", _Queries(textgen.Rule)),
        (textgen, "check_flag", lru_cache(STRINGS)(textgen.check_flag)),
        (logic.PddlState, "facts", property(_facts)),
    ]


class _Queries:
    """Replaces `Rule` where the engine only uses its `parse_conjunctive_query`."""

    def __init__(self, rule: Any) -> None:
        self.parse_conjunctive_query = lru_cache(STRINGS)(rule.parse_conjunctive_query)


def copy_symbol(symbol: Any) -> Any:
    """A copy of a symbol; setting its `context` does not change the original or its parts."""
    fresh = object.__new__(type(symbol))
    fresh.__dict__.update(symbol.__dict__)
    if hasattr(symbol, "expression") and hasattr(symbol.expression, "context"):
        fresh.expression = copy_symbol(symbol.expression)
    if hasattr(symbol.symbol, "context"):
        fresh.symbol = copy_symbol(symbol.symbol)
    return fresh


def _facts(state: Any) -> Any:
    """All facts of a state, in the engine's order."""
    return itertools.chain.from_iterable(state._facts.values())


def _copier(symbol_class: type) -> Callable[[Any], Any]:
    """The replacement for `deepcopy` in the engine's text generator."""

    def copied(value: Any) -> Any:
        if isinstance(value, symbol_class):
            return copy_symbol(value)
        if isinstance(value, list):
            return [copied(each) for each in value]
        if isinstance(value, dict):
            return dict(value)
        return copy.deepcopy(value)

    return copied
