"""Protects this process from an untrusted game file.

TextWorld passes the expressions in a game's grammar, as in `{o.indefinite + ' ' + o.name | …}`, to
Python's `eval`, so the author of a game file could run any code. This module reads only what the
grammars of ALFWorld have: texts and properties of the objects of a rule, joined by `+`, and `or`. A
game with any other expression is refused when it is loaded, and so is one whose names would
overflow the planner's buffers.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentsgym.envs.extras import require

MAX_CHARACTERS = 1000
_FIELDS = "id|type|name|noun|adj|desc|room_type|definite|indefinite"
"""The attributes of TextWorld's `EntityInfo` that a game may read; all are texts or None."""
_TERM = rf"""(?:\w+(?:\.(?:{_FIELDS}))?|'[^'\\]*'|"[^"\\]*")"""
_SUM = rf"{_TERM}(?: *\+ *{_TERM})*"
_EXPRESSION = re.compile(rf" *{_SUM}(?: +or +{_SUM})* *", re.ASCII)
_PART = re.compile(r"""'([^']*)'|"([^"]*)"|(\w+)(?:\.(\w+))?""")

MAX_LINE = 1000
"""The planner, in C, copies the names of facts and operators (one per input line) into buffers of
1,024 bytes without a check; longer names would corrupt its memory."""

Evaluator = Callable[[Mapping[str, Any]], Any]


class RefusedGame(RuntimeError):
    """A game file contains something that no game needs; the message says what.

    This is not a ValueError, because the engine treats a ValueError as a command without effect.
    """


@lru_cache(maxsize=4096)
def compiled(expression: str) -> Evaluator:
    """The expression as a function of its variables. Raises RefusedGame."""
    if len(expression) > MAX_CHARACTERS or not _EXPRESSION.fullmatch(expression):
        raise RefusedGame(
            "a game's expression may only join texts and names of things, in at most "
            f"{MAX_CHARACTERS} characters: {expression[:200]!r}"
        )
    sums: list[list[re.Match[str]]] = [[]]
    for part in _PART.finditer(expression):
        if part[3] == "or":
            sums.append([])
        else:
            sums[-1].append(part)

    def value(variables: Mapping[str, Any]) -> Any:
        options = (_sum([_value(part, variables) for part in parts]) for parts in sums)
        return next(filter(None, options), "")

    return value


def _sum(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else "".join(str(value or "") for value in values)


def _value(part: re.Match[str], variables: Mapping[str, Any]) -> Any:
    """A text, a thing of the rule, or a property of one."""
    first, second, name, field = part.groups()
    if name is None:
        return first or second or ""
    if name not in variables:
        raise RefusedGame(f"a game's expression uses {name!r}, which its rule lacks")
    return variables[name] if field is None else getattr(variables[name], field)


def safe_expressions() -> list[tuple[Any, str, Any]]:
    """Replacements (class, attribute, value) of the engine's `eval` by our evaluator."""
    textgen = require("textworld.envs.pddl.textgen", "textworld")
    symbol_class, terminal = textgen.EvalSymbol, textgen.TerminalSymbol
    stock_init = symbol_class.__init__

    def init(symbol: Any, expression: str, *arguments: Any, **keywords: Any) -> None:
        compiled(expression)  # refuses a bad game when it is loaded
        stock_init(symbol, expression, *arguments, **keywords)

    def derive(symbol: Any, context: Any = None) -> list[Any]:
        known = (context or symbol.context)["variables"]
        return [terminal(compiled(symbol.expression)(known))]

    return [(symbol_class, "__init__", init), (symbol_class, "derive", derive)]


class CheckedPlanner:
    """The planner's library; refuses input that would crash it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def load_sas(self, sas: bytes) -> None:
        """Load a translated game. Raises RefusedGame."""
        self._library.load_sas(_checked(sas))

    def load_sas_replan(self, sas: bytes) -> None:
        """The same for the planner. Raises RefusedGame."""
        self._library.load_sas_replan(_checked(sas))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


def _checked(sas: bytes) -> bytes:
    if max(map(len, sas.split(b"\n"))) > MAX_LINE:
        raise RefusedGame(f"a game's names make a line of over {MAX_LINE} characters")
    return sas


def check_game(game_file: str) -> None:
    """Raise RefusedGame for a game whose names would be read as placeholders in commands."""
    game = json.loads(Path(game_file).read_bytes())
    if any(mark in game[part] for mark in "{}" for part in ("pddl_domain", "pddl_problem")):
        raise RefusedGame(f"{game_file}: there are braces in its PDDL")
