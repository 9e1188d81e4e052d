"""Antiderivatives: our own grammar reads a text, not sympy's parser, which would evaluate it.

The grammar has numbers, the variable, the constant C, e and pi, the four operations, powers,
brackets and the named functions. The length of numbers is limited; the time that sympy needs is
not, so this must run in a process that can be ended.
"""

import re
from collections.abc import Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]

from agentsgym.envs.classical_reasoning.expression_reader import ExpressionReader

MAX_DEPTH = 30
MAX_EXPONENT = 60
MAX_BITS = 2_000
_NAMES = "sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh atanh exp log sqrt Abs"
_FUNCTIONS = {name: getattr(sympy, name) for name in _NAMES.split()} | {
    "ln": sympy.log,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "arctan": sympy.atan,
}
_CONSTANTS = {"C": sympy.Symbol("C"), "E": sympy.E, "e": sympy.E, "pi": sympy.pi}
_TOKEN = re.compile(
    r"\s*(?:(\d{1,12}(?:\.\d{1,12})?(?![\d.]))|([A-Za-z]{1,8}(?![A-Za-z_\d]))|(\*\*|[-+*/^()]))",
    re.ASCII,
)


class NotRead(ValueError):
    """A text is not an expression of this grammar, or exceeds its limits."""


def is_antiderivative(given: str, integrand: str, variable: str) -> bool:
    """Whether the derivative of `given` is the integrand; False if it cannot be read."""
    try:
        difference = sympy.diff(read(given, variable), sympy.Symbol(variable))
    except NotRead:
        return False
    return bool(sympy.simplify(difference - read(integrand, variable)) == 0)


def read(text: str, variable: str) -> Any:
    """The expression in a text. Raises NotRead."""
    reader = _Reader(text, variable)
    value = reader.total(0)
    if reader.token is not None:
        raise NotRead(f"{reader.token!r} is not expected")
    return value


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotRead(f"{text[position : position + 20]!r} cannot be read")
        position = match.end()
        yield match[1] or match[2] or match[3].replace("^", "**")


class _Reader(ExpressionReader):
    """Reads numbers, names, functions and powers."""

    error = NotRead
    max_depth = MAX_DEPTH

    def __init__(self, text: str, variable: str) -> None:
        super().__init__(_tokens(text))
        self._names = {**_CONSTANTS, variable: sympy.Symbol(variable)}

    def _combined(self, value: Any, other: Any, *, times: bool) -> Any:
        return _bounded(value * other if times else value / other)

    def _factor(self, depth: int) -> Any:
        base = self._operand(depth)
        if self.token != "**":
            return base
        self._take()
        return _power(base, self._signed(depth + 1))

    def _operand(self, depth: int) -> Any:
        token = self._take()
        if token == "(":
            return self._closed(depth)
        if token is None or not token[0].isalnum():
            raise NotRead(f"a number or a name is expected, got {token!r}")
        if token[0].isdigit():
            return sympy.Rational(token)
        if token in self._names:
            return self._names[token]
        if token not in _FUNCTIONS or self._take() != "(":
            raise NotRead(f"{token!r} is not a function, variable or constant")
        return _FUNCTIONS[token](self._closed(depth))


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_number:
        size = abs(exponent) if exponent.is_Rational else None
        if size is None or size > MAX_EXPONENT or size.q > MAX_EXPONENT:
            raise NotRead(f"the exponent {exponent} is out of bounds")
        if base.is_Rational and _bits(base) * size > MAX_BITS:
            raise NotRead("a number is too long")
    return _bounded(base**exponent)


def _bounded(value: Any) -> Any:
    if value.is_Rational and _bits(value) > MAX_BITS:
        raise NotRead("a number is too long")
    if value.has(sympy.zoo, sympy.nan):
        raise NotRead("division by zero")
    return value


def _bits(number: Any) -> int:
    return max(int(number.p).bit_length(), int(number.q).bit_length())
