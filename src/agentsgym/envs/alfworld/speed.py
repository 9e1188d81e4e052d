"""The speed patch: caches values that the engine would compute again and again.

Invariant: transcripts are those of the unpatched engine, character by character. The unpatched
engine parses the same grammar strings at every step, copies its whole state for every symbol it
expands, and translates a game's PDDL into the planner's format four times per episode. The patch
caches parsed strings and translations, and copies only the parts that are modified. It supports
certain engine versions; with any other version it does nothing and warns.
"""

import copy
import importlib.metadata
import itertools
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from agentsgym.envs.extras import require

KNOWN_VERSIONS = {"textworld": {"1.7.0"}, "fast-downward-textworld": {"20.6.4"}}
TRANSLATIONS = 64
STRINGS = 4096


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
