"""Protects this process from an untrusted game file.

TextWorld passes the expressions in a game's grammar, as in `{o.indefinite + ' ' + o.name | …}`, to
Python's `eval`, so the author of a game file could run any code. This module evaluates only what
games need: texts, the objects of a rule, their properties, `+`, `and`, `or`, `not`, `==`, `!=` and
`… if … else …`. A game with any other expression is refused when it is loaded, and so is one whose
names would overflow the planner's buffers.
"""

import ast
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentsgym.envs.extras import require

MAX_CHARACTERS = 1000
MAX_VALUE = 100_000
FIELDS = frozenset(
    {"id", "type", "name", "noun", "adj", "desc", "room_type", "definite", "indefinite"}
)
"""The attributes of TextWorld's `EntityInfo` that a game may read; all are texts or None."""

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
    shown = repr(expression[:200])
    if len(expression) > MAX_CHARACTERS:
        raise RefusedGame(f"the expression {shown} is longer than {MAX_CHARACTERS} characters")
    try:
        return _compile(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RefusedGame(
            f"a game's expression may only join texts and names of things: {shown} ({error})"
        ) from None


def _compile(node: ast.expr) -> Evaluator:
    match node:
        case ast.Constant(value=str() | int() as value):
            return lambda variables: value
        case ast.Name(id=name):
            return lambda variables: _thing(variables, name)
        case ast.Attribute(value=ast.Name(id=name), attr=field) if field in FIELDS:
            return lambda variables: getattr(_thing(variables, name), field)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _compile(left), _compile(right)
            return lambda variables: _joined(first(variables), second(variables))
        case ast.BoolOp(op=ast.And() | ast.Or() as op, values=values):
            stop_at, parts = isinstance(op, ast.Or), [_compile(value) for value in values]
            return lambda variables: _connected(stop_at, [part(variables) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _compile(operand)
            return lambda variables: not inner(variables)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            same, one, other = isinstance(op, ast.Eq), _compile(left), _compile(right)
            return lambda variables: (one(variables) == other(variables)) is same
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition, yes, no = _compile(test), _compile(body), _compile(orelse)
            return lambda variables: yes(variables) if condition(variables) else no(variables)
    raise ValueError(f"{type(node).__name__} is not allowed")


def _connected(stop_at: bool, values: list[Any]) -> Any:
    """The value of `or` (the first true one, else the last) or `and`, as in Python."""
    return next((value for value in values if bool(value) is stop_at), values[-1])


def _thing(variables: Mapping[str, Any], name: str) -> Any:
    try:
        return variables[name]
    except KeyError:
        raise RefusedGame(f"a game's expression uses {name!r}, which its rule lacks") from None


def _joined(first: Any, second: Any) -> str:
    if not (isinstance(first, str) and isinstance(second, str)):
        raise RefusedGame(f"a game's expression joins {first!r} and {second!r}: not two texts")
    if len(first) + len(second) > MAX_VALUE:
        raise RefusedGame(f"a game's expression makes a text of over {MAX_VALUE} characters")
    return first + second


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
