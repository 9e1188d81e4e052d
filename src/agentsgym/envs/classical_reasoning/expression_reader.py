"""The grammar that arithmetic and symbolic answers share: sums, products, signs and brackets."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar


class ExpressionReader(ABC):
    """Reads tokens from left to right; `token` is the next one. A subclass reads the operands."""

    error: ClassVar[type[ValueError]]
    max_depth: ClassVar[int]

    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self.token = next(self._tokens, None)

    def total(self, depth: int) -> Any:
        """A sum or difference."""
        value = self._product(depth)
        while self.token in ("+", "-"):
            plus = self._take() == "+"
            other = self._product(depth)
            value = value + other if plus else value - other
        return value

    @abstractmethod
    def _factor(self, depth: int) -> Any:
        """One factor of a product, without a sign. Raises `error`."""

    @abstractmethod
    def _combined(self, value: Any, other: Any, *, times: bool) -> Any:
        """The product (`times`) or quotient of two values. Raises `error`."""

    def _product(self, depth: int) -> Any:
        value = self._signed(depth)
        while self.token in ("*", "/"):
            times = self._take() == "*"
            value = self._combined(value, self._signed(depth), times=times)
        return value

    def _signed(self, depth: int) -> Any:
        if depth > self.max_depth:
            raise self.error("too many brackets")
        if self.token in ("+", "-"):
            plus = self._take() == "+"
            value = self._signed(depth + 1)
            return value if plus else -value
        return self._factor(depth)

    def _closed(self, depth: int) -> Any:
        """The sum after an opening bracket, with its closing bracket."""
        value = self.total(depth + 1)
        if self._take() != ")":
            raise self.error("a bracket is not closed")
        return value

    def _take(self) -> str | None:
        token, self.token = self.token, next(self._tokens, None)
        return token
