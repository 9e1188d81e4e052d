"""A predicate: the meaning of a yes/no question, ready to be looked up in a table."""

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

    `key` is the attribute's key, the secret, the category or the letter; `number` the size in
    centimetres that `bigger` and `smaller` compare with, or a count; `parts` what `not`, `and` and
    `or` combine.
    """

    kind: PredicateKind
    key: str = ""
    number: float = 0.0
    parts: tuple[Predicate, ...] = ()

    @property
    def attribute(self) -> str | None:
        """The attribute's key where the question asks for exactly one, negated or not."""
        if self.kind == "not":
            return self.parts[0].attribute
        return self.key if self.kind == "attribute" else None

    def negated(self) -> Predicate:
        return self.parts[0] if self.kind == "not" else Predicate("not", parts=(self,))
