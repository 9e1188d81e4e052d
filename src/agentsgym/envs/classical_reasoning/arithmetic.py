"""A calculator for answers: numbers, the four operations and brackets, exact and bounded.

It reads the text itself, so that no answer is ever evaluated as code.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

MAX_DIGITS = 12
MAX_DEPTH = 20
_TOKEN = re.compile(rf"\s*(?:(\d{{1,{MAX_DIGITS}}}(?!\d))|([-+*/()]))")


class NotArithmetic(ValueError):
    """A text is no expression of this grammar, or divides by zero."""


def calculate(text: str) -> tuple[Fraction, list[int]]:
    """The value of an expression of whole numbers, and the numbers in the order they stand.

    Raises NotArithmetic.
    """
    reader = _Reader(text)
    value = reader.total(0)
    if reader.token is not None:
        raise NotArithmetic(f"{reader.token!r} is not expected")
    return value, reader.numbers


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotArithmetic(f"{text[position : position + 20]!r} is no arithmetic")
        position = match.end()
        yield match[1] or match[2]


class _Reader:
    """Reads tokens from left to right; `token` is the next one."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self.token = next(self._tokens, None)
        self.numbers: list[int] = []

    def total(self, depth: int) -> Fraction:
        """A sum or difference."""
        value = self._product(depth)
        while self.token in ("+", "-"):
            plus = self._take() == "+"
            other = self._product(depth)
            value = value + other if plus else value - other
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._signed(depth)
        while self.token in ("*", "/"):
            times = self._take() == "*"
            other = self._signed(depth)
            if not times and other == 0:
                raise NotArithmetic("division by zero")
            value = value * other if times else value / other
        return value

    def _signed(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise NotArithmetic("too many brackets")
        if self.token in ("+", "-"):
            plus = self._take() == "+"
            value = self._signed(depth + 1)
            return value if plus else -value
        return self._operand(depth)

    def _operand(self, depth: int) -> Fraction:
        token = self._take()
        if token == "(":
            value = self.total(depth + 1)
            if self._take() != ")":
                raise NotArithmetic("a bracket is not closed")
            return value
        if token is None or not token.isdigit():
            raise NotArithmetic(f"a number is expected, got {token!r}")
        self.numbers.append(int(token))
        return Fraction(int(token))

    def _take(self) -> str | None:
        token, self.token = self.token, next(self._tokens, None)
        return token
