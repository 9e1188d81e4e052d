"""The knowledge table: the attributes and the categories of each secret, and the predicates that it
answers.

Invariant: `values[i, j]` is the answer to `attributes[j].question` about `secrets[i]`: 1 yes, 0 no,
-1 unknown. All data is in the package; nothing is downloaded or random. The is-a hierarchy is
derived from WordNet 3.0 (see `data/WORDNET-LICENSE`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from agentsgym.envs.known_game import bit_mask, members
from agentsgym.envs.twenty_questions.words import normalize
from agentsgym.types.rows import Floats

PredicateKind = Literal["attribute", "secret", "is_a", "bigger", "smaller", "not", "and", "or"]


@dataclass(frozen=True)
class Predicate:
    """One question's meaning.

    `key` is the attribute's key, the secret or the category; `number` is the size in centimeters
    that `bigger` and `smaller` compare with; `parts` are the operands of
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
        nodes_of: dict[str, set[int]] = {}
        for node, words in enumerate(self.words):
            for word in words:
                nodes_of.setdefault(word, set()).add(node)
        return {word: frozenset(nodes) for word, nodes in nodes_of.items()}

    def closure(self, node: int) -> frozenset[int]:
        """The node and all its direct and indirect categories."""
        if node not in self._closures:
            nodes, todo = {node}, [node]
            while todo:
                for parent in self.parents[todo.pop()]:
                    if parent not in nodes:
                        nodes.add(parent)
                        todo.append(parent)
            self._closures[node] = frozenset(nodes)
        return self._closures[node]

    def knows(self, word: str) -> bool:
        return word in self.nodes or word in self.nouns or word in self.narrower

    def is_a(self, secret: str, word: str) -> bool | None:
        """Whether the secret is a kind of `word`; None if the hierarchy does not say."""
        node = self.secrets.get(secret, -1)
        if node < 0 or not self.knows(word) or secret in self.narrower.get(word, ()):
            return None
        categories = self.nodes.get(word, frozenset())
        if categories & self.closure(node):
            return True
        return None if any(node in self.closure(other) for other in categories) else False


TABLES: Final = ("default", "hardcore", "quickstart")
Values = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Attribute:
    """A yes/no property. "Yes, {phrase}." and "No, not {phrase}." read as answers."""

    key: str
    question: str
    phrase: str


@dataclass(frozen=True, eq=False)
class KnowledgeTable:
    """Secrets, attributes and their values; immutable (the array is read-only).

    `sizes` are typical sizes in centimeters, None if a size makes no sense; `synonyms` are declared
    other names of a secret; `wordings` are more phrases that the parser reads as a question for an
    attribute, as `form:phrase`; `references` are sizes of objects that a question may compare with.
    """

    name: str
    secrets: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    values: Values
    sizes: tuple[float | None, ...]
    synonyms: Mapping[str, tuple[str, ...]]
    wordings: Mapping[str, tuple[str, ...]]
    references: Mapping[str, float]
    taxonomy: Taxonomy

    @cached_property
    def secret_index(self) -> Mapping[str, int]:
        return {secret: i for i, secret in enumerate(self.secrets)}

    @cached_property
    def attribute_index(self) -> Mapping[str, int]:
        return {attribute.key: j for j, attribute in enumerate(self.attributes)}

    @cached_property
    def _names(self) -> Mapping[str, str]:
        names = {normalize(s): secret for secret in self.secrets for s in self.names(secret)}
        return {**names, **{normalize(secret): secret for secret in self.secrets}}

    def names(self, secret: str) -> tuple[str, ...]:
        """The secret and its declared synonyms."""
        return (secret, *self.synonyms.get(secret, ()))

    def canonical(self, text: str) -> str | None:
        """The secret that the whole text names, directly or by a declared synonym; else None."""
        return self._names.get(normalize(text)) if text else None

    def row(self, secret: str) -> Values:
        """One secret's values, int8 of shape [n_attributes]. KeyError for an unknown secret."""
        return np.asarray(self.values[self.secret_index[secret]])

    def answer(self, secret: str, predicate: Predicate) -> bool | None:
        """Yes (True), no (False) or unknown (None). A secret outside the table is unknown."""
        if predicate.kind == "not":
            inner = self.answer(secret, predicate.parts[0])
            return None if inner is None else not inner
        if predicate.kind in ("and", "or"):
            answers = [self.answer(secret, part) for part in predicate.parts]
            decisive = predicate.kind == "or"
            return decisive if decisive in answers else None if None in answers else not decisive
        if secret not in self.secret_index:
            return None
        return self._look_up(secret, predicate)

    def _look_up(self, secret: str, predicate: Predicate) -> bool | None:
        match predicate.kind:
            case "attribute":
                value = int(self.row(secret)[self.attribute_index[predicate.key]])
                return None if value < 0 else bool(value)
            case "secret":
                return secret == predicate.key or self.taxonomy.is_a(secret, predicate.key)
            case "is_a":
                return self.taxonomy.is_a(secret, predicate.key)
            case "bigger" | "smaller":
                size = self.sizes[self.secret_index[secret]]
                if size is None:
                    return None
                bigger = predicate.kind == "bigger"
                return size > 1.1 * predicate.number if bigger else size < 0.9 * predicate.number
        return None


def _data(name: str) -> Any:
    text = resources.files(__package__).joinpath("data", f"{name}.json").read_text("utf-8")
    return json.loads(text)


def _unpack(text: str, length: int) -> Values:
    """A row of the data files, int8 of shape [length]: two bits per value (yes, unknown), as
    base64."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8))
    values = bits[:length].astype(np.int8) - bits[length : 2 * length].astype(np.int8)
    return values.astype(np.int8)


@cache
def _taxonomy() -> Taxonomy:
    raw = _data("wordnet")
    return Taxonomy(
        words=tuple(tuple(words.split("|")) if words else () for words in raw["words"]),
        parents=tuple(tuple(parents) for parents in raw["parents"]),
        secrets=raw["secrets"],
        nouns=frozenset(raw["nouns"].split()),
        narrower={word: tuple(secrets) for word, secrets in raw["narrower"].items()},
    )


@cache
def _references() -> Mapping[str, float]:
    sizes: dict[str, float] = dict(_data("references"))
    for name in ("hardcore", "default"):
        for secret, entry in _data(name)["secrets"].items():
            for word in (*entry.get("synonyms", ()), secret):
                if entry["size"] is not None:
                    sizes[word] = float(entry["size"])
    return sizes


@cache
def load_table(name: str = "default") -> KnowledgeTable:
    """The built-in table of that name, cached.

    "default": everyday things, places and people's roles. "hardcore": rarer ones. "quickstart": 64
    secrets of the default table and 32 attributes that distinguish all of them; values unknown in
    the default table are set to the typical case. Raises ValueError for another name.
    """
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}; the tables are {', '.join(TABLES)}")
    raw = _data(name)
    entries, keys = raw["secrets"], raw["attributes"]
    by_key = {entry["key"]: entry for entry in _data("attributes")}
    values = np.stack([_unpack(entry["values"], len(keys)) for entry in entries.values()])
    values.setflags(write=False)
    return KnowledgeTable(
        name=name,
        secrets=tuple(entries),
        attributes=tuple(Attribute(k, by_key[k]["question"], by_key[k]["phrase"]) for k in keys),
        values=values,
        sizes=tuple(entry["size"] for entry in entries.values()),
        synonyms={s: tuple(e["synonyms"]) for s, e in entries.items() if "synonyms" in e},
        wordings={key: tuple(by_key[key]["wordings"]) for key in keys},
        references=_references(),
        taxonomy=_taxonomy(),
    )


# -- the best play that we can compute ------------------------------------------------------------


class BestPlay:
    """The most informative questions over one table, with all possible secrets equally likely.

    It is greedy, not exact: a player that plans further or compares sizes may in principle be
    better. If all answers are known, no policy needs fewer than log2(secrets) questions on average;
    on the quickstart table this one is within a tenth of a question of that bound. "I don't know"
    is an answer like the others and also gives information.

    A set of secrets is a bit mask (bit i: `table.secrets[i]`); the best question for a set is
    computed once. Ties go to the earlier attribute, so play is deterministic.
    """

    def __init__(self, table: KnowledgeTable) -> None:
        self._table = table
        self.everything = (1 << len(table.secrets)) - 1
        self._agreeing = {
            (attribute.key, answer): bit_mask(column == value)
            for attribute, column in zip(table.attributes, table.values.T, strict=True)
            for answer, value in ((True, 1), (False, 0), (None, -1))
        }
        self._best: dict[int, Attribute | None] = {}

    def agreeing(self, possible: int, attribute: str | None, answer: bool | None) -> int:
        """The secrets of `possible` with this answer (None: "I don't know"); all of them if the
        question asked for no attribute of the table."""
        return possible & self._agreeing.get((attribute or "", answer), self.everything)

    def question(self, possible: int) -> Attribute | None:
        """The most informative attribute; None if none separates the secrets of `possible`."""
        if possible not in self._best:
            gains = np.round(self.gains(possible), 9)
            best = int(np.argmax(gains))
            self._best[possible] = self._table.attributes[best] if gains[best] > 0 else None
        return self._best[possible]

    def gains(self, possible: int) -> Floats:
        """Expected information of each attribute's answer, in bits, shape (attributes,)."""
        rows = self._table.values[members(possible)]
        shares = np.stack([(rows == value).mean(axis=0) for value in (1, 0, -1)])
        gains: Floats = -(shares * np.log2(np.maximum(shares, 1e-9))).sum(axis=0)
        return gains


@cache
def best_play(table: KnowledgeTable) -> BestPlay:
    """The reference player over a table, which remembers its questions."""
    return BestPlay(table)
