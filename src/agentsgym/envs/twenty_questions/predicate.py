"""A predicate: the meaning of a yes/no question, which a table can answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PredicateKind = Literal[
    "attribute", "secret", "is_a", "bigger", "smaller", "starts_with", "has_letter", "letters",
    "words", "not", "and", "or",
]  # fmt: skip


@dataclass(frozen=True)
class Predicate:
    """One question's meaning.

    `key` is the attribute's key, the secret, the category or the letter; `number` is a count, or
    the size in centimeters that `bigger` and `smaller` compare with; `parts` are the operands of
    `not`, `and` and `or`.
    """

    kind: PredicateKind
    key: str = ""
    number: float = 0.0
    parts: tuple[Predicate, ...] = ()

    @property
    def attribute(self) -> str | None:
        """The attribute's key if the question asks for exactly one, possibly negated; else None."""
        if self.kind == "not":
            return self.parts[0].attribute
        return self.key if self.kind == "attribute" else None

    def negated(self) -> Predicate:
        return self.parts[0] if self.kind == "not" else Predicate("not", parts=(self,))
