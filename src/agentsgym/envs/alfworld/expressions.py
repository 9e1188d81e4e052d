"""The expressions in a game's grammar, as in `{o.indefinite + ' ' + o.name | …}`.

TextWorld passes them to Python's `eval`, so the author of a game file could run any code. This
module evaluates only what games need: texts, the objects of a rule, their properties, `+`, `and`,
`or`, `not`, `==`, `!=` and `… if … else …`. A game with any other expression is refused when it is
loaded.
"""

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

MAX_CHARACTERS = 1000
MAX_VALUE = 100_000
FIELDS = frozenset(
    {"id", "type", "name", "noun", "adj", "desc", "room_type", "definite", "indefinite"}
)
"""The attributes of TextWorld's `EntityInfo` that a game may read; all are texts or None."""

Evaluator = Callable[[Mapping[str, Any]], Any]


class RefusedGame(RuntimeError):
    """A game file contains something that no game needs; the message says what.

    This is not a ValueError, because the engine treats a ValueError as a command without effect.
    """


def evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression. Raises RefusedGame for an expression that is not allowed."""
    return compiled(expression)(variables)


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
            return _connected(isinstance(op, ast.Or), [_compile(value) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _compile(operand)
            return lambda variables: not inner(variables)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            same, one, other = isinstance(op, ast.Eq), _compile(left), _compile(right)
            return lambda variables: (one(variables) == other(variables)) is same
        case ast.IfExp(test=test, body=body, orelse=orelse):
            asked, yes, no = _compile(test), _compile(body), _compile(orelse)
            return lambda variables: yes(variables) if asked(variables) else no(variables)
    raise ValueError(f"{type(node).__name__} is not allowed")


def _connected(stop_at: bool, parts: list[Evaluator]) -> Evaluator:
    """`or` (stops at the first true value) or `and`, returning the same values as Python."""

    def value(variables: Mapping[str, Any]) -> Any:
        found: Any = None
        for part in parts:
            found = part(variables)
            if bool(found) is stop_at:
                break
        return found

    return value


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
