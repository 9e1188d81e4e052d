"""The is-a hierarchy of the secrets, derived from WordNet 3.0 (see `data/WORDNET-LICENSE`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Taxonomy:
    """A graph of word senses that contains the senses of the secrets.

    `words[n]` are node n's synonyms, `parents[n]` its direct categories, `secrets` each secret's
    node (-1: none). `nouns` are common nouns that are not the category of any secret; `narrower`
    maps a noun that is more specific than some secrets (a terrier is a dog) to these secrets.
    """

    words: tuple[tuple[str, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    secrets: Mapping[str, int]
    nouns: frozenset[str]
    narrower: Mapping[str, tuple[str, ...]]
    _closures: dict[int, frozenset[int]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def nodes(self) -> Mapping[str, frozenset[int]]:
        """Every word's nodes."""
        found: dict[str, set[int]] = {}
        for node, words in enumerate(self.words):
            for word in words:
                found.setdefault(word, set()).add(node)
        return {word: frozenset(nodes) for word, nodes in found.items()}

    def closure(self, node: int) -> frozenset[int]:
        """The node and all its direct and indirect categories."""
        if node not in self._closures:
            found, todo = {node}, [node]
            while todo:
                for parent in self.parents[todo.pop()]:
                    if parent not in found:
                        found.add(parent)
                        todo.append(parent)
            self._closures[node] = frozenset(found)
        return self._closures[node]

    def knows(self, word: str) -> bool:
        return word in self.nodes or word in self.nouns or word in self.narrower

    def is_a(self, secret: str, word: str) -> bool | None:
        """Whether the secret is a kind of `word`; None if the hierarchy does not say."""
        node = self.secrets.get(secret, -1)
        if node < 0 or not self.knows(word) or secret in self.narrower.get(word, ()):
            return None
        asked = self.nodes.get(word, frozenset())
        if asked & self.closure(node):
            return True
        return None if any(node in self.closure(other) for other in asked) else False

    def hierarchy(self, secret: str) -> tuple[str, ...]:
        """The first word of each of the secret's categories, nearest first."""
        order: list[int] = []
        todo = [node for node in (self.secrets.get(secret, -1),) if node >= 0]
        while todo:
            node = todo.pop(0)
            if node not in order:
                order.append(node)
                todo.extend(self.parents[node])
        return tuple(self.words[n][0] for n in order[1:] if self.words[n])
