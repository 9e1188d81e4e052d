"""The speed patch: caches values that the engine would compute again and again.

Invariant: transcripts are those of the unpatched engine, character by character. The unpatched
engine parses the same grammar strings at every step, copies its whole state for every symbol it
expands, and translates a game's PDDL into the planner's format four times per episode. The patch
caches parsed strings and translations, and copies only the parts that are modified. It supports
certain engine versions; with any other version it does nothing and warns.
"""

import copy
import importlib.metadata
import inspect
import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from agentsgym.envs.extras import require

KNOWN_VERSIONS = {"textworld": {"1.7.0"}, "fast-downward-textworld": {"20.6.4"}}
TRANSLATIONS = 64
STRINGS = 4096


class Memo:
    """A cache of the last `size` results of a pure function, by arguments."""

    def __init__(self, function: Callable[..., Any], size: int) -> None:
        self._function = function
        self._size = size
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = (args, tuple(sorted(kwargs.items())))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        value = self._function(*args, **kwargs)
        self._kept[key] = value
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return value


def unknown_versions() -> dict[str, str]:
    """Installed packages whose version the patch does not support."""
    found = {}
    for package, known in KNOWN_VERSIONS.items():
        version = importlib.metadata.version(package)
        if version not in known:
            found[package] = version
    return found


class SpeedPatch:
    """Replacements for module attributes, installed by `apply` and removed by `restore`."""

    def __init__(self) -> None:
        unknown = unknown_versions()
        self.active = not unknown
        self._swaps: list[tuple[Any, str, Any, Any]] = []
        if unknown:
            listed = ", ".join(f"{name} {version}" for name, version in sorted(unknown.items()))
            warnings.warn(
                f"the ALFWorld speed patch does not support {listed}; the engine runs unpatched, "
                "about 20 times slower",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            self._prepare()

    def apply(self) -> None:
        """Install the replacements."""
        for module, name, _, ours in self._swaps:
            setattr(module, name, ours)

    def restore(self) -> None:
        """Restore the engine's own functions."""
        for module, name, stock, _ in self._swaps:
            setattr(module, name, stock)

    def _prepare(self) -> None:
        fast_downward = require("fast_downward", "alfworld")
        logic = require("textworld.envs.pddl.logic", "alfworld")
        textgen = require("textworld.envs.pddl.textgen", "alfworld")
        self._swap(fast_downward, "pddl2sas", Memo(fast_downward.pddl2sas, TRANSLATIONS))
        self._swap(logic, "_parse_and_convert", Memo(logic._parse_and_convert, TRANSLATIONS))
        parse = Memo(textgen._parse_and_convert, STRINGS)

        def parse_and_copy(text: str, *, rule_name: str, trace: bool = False) -> Any:
            if trace:
                return parse(text, rule_name=rule_name, trace=trace)
            return [copy_symbol(symbol) for symbol in parse(text, rule_name=rule_name)]

        self._swap(textgen, "_parse_and_convert", parse_and_copy)
        self._swap(textgen, "deepcopy", _copier(textgen.Symbol))
        self._swap(textgen, "Rule", _Queries(textgen.Rule))
        self._swap(textgen, "check_flag", Memo(textgen.check_flag, STRINGS))
        self._swap(logic.PddlState, "facts", property(_facts))

    def _swap(self, module: Any, name: str, ours: Any) -> None:
        self._swaps.append((module, name, inspect.getattr_static(module, name), ours))


class _Queries:
    """Replaces `Rule` where the engine only uses its `parse_conjunctive_query`."""

    def __init__(self, rule: Any) -> None:
        self.parse_conjunctive_query = Memo(rule.parse_conjunctive_query, STRINGS)


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
