"""A calculator for answers: numbers, the four operations and brackets, exact and bounded.

It parses the text itself, so no answer is ever evaluated as code.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from agentsgym.envs.classical_reasoning.expression_reader import ExpressionReader

MAX_DIGITS = 12
MAX_DEPTH = 20
_TOKEN = re.compile(rf"\s*(?:(\d{{1,{MAX_DIGITS}}}(?!\d))|([-+*/()]))")


class NotArithmetic(ValueError):
    """A text is not an expression of this grammar, or divides by zero."""


def calculate(text: str) -> tuple[Fraction, list[int]]:
    """The value of an expression of whole numbers, and its numbers in order.

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
            raise NotArithmetic(f"{text[position : position + 20]!r} is not arithmetic")
        position = match.end()
        yield match[1] or match[2]


class _Reader(ExpressionReader):
    """Reads whole numbers, and lists them in `numbers`."""

    error = NotArithmetic
    max_depth = MAX_DEPTH

    def __init__(self, text: str) -> None:
        super().__init__(_tokens(text))
        self.numbers: list[int] = []

    def _combined(self, value: Fraction, other: Fraction, *, times: bool) -> Fraction:
        if not times and other == 0:
            raise NotArithmetic("division by zero")
        return value * other if times else value / other

    def _factor(self, depth: int) -> Fraction:
        token = self._take()
        if token == "(":
            inner: Fraction = self._closed(depth)
            return inner
        if token is None or not token.isdigit():
            raise NotArithmetic(f"a number is expected, got {token!r}")
        self.numbers.append(int(token))
        return Fraction(int(token))
