"""Converts questions in free English to predicates.

The grammar is data: `data/grammar.json` has, for each kind of phrase ("be": the words after "is
it"), rules in the order in which they are tried. A rule is a pattern and its readings, of which the
first that can be read counts:

    be: $1        a table's wording of the form "be" (the words of group 1, in normal form)
    be> $1        a phrase of the kind "be", by its rules or by the method of that name
    be~ $1        the same, where "not" and one "and" or "or" are read, too
    !be> $1       its opposite
    be> $1 & do> $2      both must hold; with &? the second alone if the first cannot be read
    stop          nothing else is tried

In a pattern, `{name}` is one of the words of a class, or a part of a pattern (`macros`). There is
no guessing: for an unknown phrase `parse` returns None and the answer is "I don't know". A
question's length is limited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache, partial

from agentsgym.envs.action_text import bare
from agentsgym.envs.twenty_questions.knowledge import KnowledgeTable, Predicate, PredicateKind
from agentsgym.envs.twenty_questions.words import GRAMMAR, normal, tokens

MAX_CHARS = 200
MAX_WORDS = 30
_SENTENCE_ENDS = re.compile(r"(?<=[.!:])\s+|\n")
_READING = re.compile(r"(!?)(\w+)([:>~]) (.*)")
_GROUP = re.compile(r"\$(\d)")
_HEADS: Mapping[str, str] = GRAMMAR["heads"]
_LEAD = {",", *GRAMMAR["lead"].split()}
_BIGGER, _SMALLER = GRAMMAR["bigger"].split(), GRAMMAR["smaller"].split()
_NOT_QUALIFIED = {"and", "or", "not", "than", *GRAMMAR["classes"]["preposition"].split()}


def _patterns() -> dict[str, list[tuple[re.Pattern[str], list[str]]]]:
    parts: dict[str, str] = {}
    for name, words in GRAMMAR["classes"].items():
        listed = words.split() if isinstance(words, str) else words
        parts[name] = f"(?:{'|'.join(listed)})(?![^ ])"
    for name, part in GRAMMAR["macros"].items():
        parts[name] = _filled(part, parts)
    return {
        kind: [(re.compile(_filled(pattern, parts)), readings) for pattern, *readings in rules]
        for kind, rules in GRAMMAR["rules"].items()
    }


def _filled(pattern: str, parts: Mapping[str, str]) -> str:
    return re.sub(r"\{([a-zA-Z]\w*)\}", lambda name: parts[name[1]], pattern)


_RULES = _patterns()


def parse(question: str, table: KnowledgeTable) -> Predicate | None:
    """The meaning of a question about the secret, or None if it cannot be read.

    Never raises; a text that is empty, longer than `MAX_CHARS`, or not exactly one question is not
    read. Quotes, a leading "Question:", and sentences before the question do not matter.
    """
    text = question.strip()
    if not text or len(text) > MAX_CHARS:
        return None
    if "?" not in text.rstrip("? !."):
        meaning = _parse(text, table)
        if meaning is not None:
            return meaning
    text = bare(text)
    if "?" in text.rstrip("? !."):
        return None
    return _parse(text, table) or _last_sentence(text, table)


def _last_sentence(text: str, table: KnowledgeTable) -> Predicate | None:
    """The meaning of the last sentence if it ends with a question mark and no other is one."""
    *before, last = [bare(part) for part in _SENTENCE_ENDS.split(text) if part.strip()] or [""]
    if not before or not last.endswith("?") or any(_parse(part, table) for part in before if part):
        return None
    return _parse(last, table)


@lru_cache(maxsize=8192)
def _parse(text: str, table: KnowledgeTable) -> Predicate | None:
    reader = _reader(table)
    key = None if "," in text else reader.whole.get(" ".join(tokens(text)))
    if key is not None:
        return Predicate("attribute", key)
    words = _question_words(text)
    if "," in words:
        return None
    return reader.read("question", " ".join(words)) if 2 <= len(words) <= MAX_WORDS else None


def _question_words(text: str) -> list[str]:
    """A question's words with contractions expanded; a comma is a separate word."""
    words: list[str] = []
    for part in text.split(","):
        words.append(",")
        for word in tokens(part):
            words += GRAMMAR["contractions"].get(word, word).split()
    while words and words[0] in _LEAD:
        words.pop(0)
    return [word for word in words if word != "please"]


class _Reader:
    """Reads questions with one table."""

    def __init__(self, table: KnowledgeTable) -> None:
        self.table = table
        self.whole = {" ".join(tokens(a.question)): a.key for a in table.attributes}
        self.wordings: dict[str, str] = {}
        for key, wordings in table.wordings.items():
            for form, _, phrase in (wording.partition(":") for wording in wordings):
                stems = normal(tokens(phrase))
                if stems:
                    self.wordings.setdefault(f"{form}:{stems}", key)

    def read(self, kind: str, text: str) -> Predicate | None:
        """The first reading of a phrase by the rules of its kind, or by the method."""
        if kind not in _RULES:
            by_name: Predicate | None = getattr(self, f"_{kind}")(text.split())
            return by_name
        for pattern, readings in _RULES[kind]:
            match = pattern.fullmatch(text)
            for reading in readings if match else ():
                if reading == "stop":
                    return None
                assert match is not None
                meaning = self._reading(_GROUP.sub(partial(_group_of, match), reading))
                if meaning is not None:
                    return meaning
        return None

    def _reading(self, reading: str) -> Predicate | None:
        first, both, second = reading.partition(" & ")
        if not both:
            first, both, second = reading.partition(" &? ")
        if not both:
            return self._one(first)
        base, clause = self._one(first), self._one(second)
        if clause is None or base == clause or (base is None and both == " &? "):
            return clause
        return Predicate("and", parts=(base, clause)) if base else None

    def _one(self, reading: str) -> Predicate | None:
        match = _READING.fullmatch(reading)
        assert match is not None, reading
        opposite, kind, how, text = match.groups()
        if how == ":":
            meaning = self._wording(kind, text.split())
        elif how == ">":
            meaning = self.read(kind, text)
        else:
            meaning = self._with_not(kind, text)
        return meaning.negated() if meaning and opposite else meaning

    def _wording(self, form: str, words: list[str]) -> Predicate | None:
        key = self.wordings.get(f"{form}:{normal(words)}") if words else None
        if key is None and any(w in ("inside", "within") for w in words[:-1]):
            plain = ["in" if w in ("inside", "within") else w for w in words]
            key = self.wordings.get(f"{form}:{normal(plain)}")
        return Predicate("attribute", key) if key else None

    # -- "not", "and", "or" ---------------------------------------------------------------------

    def _with_not(self, kind: str, text: str) -> Predicate | None:
        words = text.split()
        negative = words[0] in ("not", "never")
        body = words[negative:]
        meaning = (self.read(kind, " ".join(body)) or self._joined(kind, body)) if body else None
        return meaning.negated() if meaning and negative else meaning

    def _joined(self, kind: str, words: list[str]) -> Predicate | None:
        """Two readable parts joined by one "and" or "or"; never a choice among secrets."""
        joints = [i for i, word in enumerate(words) if word in ("and", "or")]
        if len(joints) != 1 or not 0 < joints[0] < len(words) - 1:
            return None
        left, right = words[: joints[0]], words[joints[0] + 1 :]
        left = left[1:] if left[0] in ("either", "both") and len(left) > 1 else left
        first = self.read(kind, " ".join(left))
        if first is None:
            return None
        # "found in a bedroom or (found in a) kitchen"
        tries = (
            self.read(kind, " ".join(left[:cut] + right)) for cut in range(len(left) - 1, -1, -1)
        )
        second = next(filter(None, tries), None)
        if second == first:
            return first
        if second is None or "secret" in (first.kind, second.kind):
            return None
        return Predicate("and" if words[joints[0]] == "and" else "or", parts=(first, second))

    # -- phrases that are looked up elsewhere -----------------------------------------------------

    def _childlike(self, words: list[str]) -> Predicate | None:
        """Actions of people that children do too."""
        meaning = self.read("you", " ".join(words))
        refused = GRAMMAR["not_for_children"].split()
        return None if meaning is None or meaning.attribute in refused else meaning

    def _head(self, words: list[str]) -> Predicate | None:
        """ "someone", "a creature": the category of a head."""
        return self._wording("be", [_HEADS[words[0]]])

    def _kind(self, words: list[str]) -> Predicate | None:
        """What stands before a clause: "a wild animal (that ...)"; not "something"."""
        kept = _content(words)
        if not kept or (len(kept) == 1 and not _HEADS.get(kept[0], "x")):
            return None
        return self._wording("be", kept) or self._qualified(kept)

    def _secret_name(self, words: list[str]) -> str | None:
        if len(words) > 4 or any(w in ("and", "or") for w in words):
            return None
        text = " ".join(words)
        return self.table.canonical(text) or self.table.canonical(text.removesuffix("s"))

    def _secret(self, words: list[str]) -> Predicate | None:
        """ "a rose", "the sun": the article distinguishes a secret from a color or a material."""
        if words[0] not in ("a", "an", "the") or len(words) == 1:
            return None
        name = self._secret_name(words[1:])
        if name is None:
            return None
        a_category = name in GRAMMAR["category_first"].split() and self._wording("be", words)
        return None if a_category else Predicate("secret", name)

    def _noun(self, words: list[str]) -> Predicate | None:
        """A secret or a WordNet category."""
        name = self._secret_name(words)
        if name is not None:
            return Predicate("secret", name)
        kept = [w for w in words if normal([w]) or w == "of"]
        while kept and kept[0] == "of":
            kept = kept[1:]
        if not 1 <= len(kept) <= 3:
            return None
        singular = " ".join([*kept[:-1], kept[-1].removesuffix("s")])
        known = (word for word in (" ".join(kept), singular) if self.table.taxonomy.knows(word))
        return next((Predicate("is_a", word) for word in known), None)

    def _qualified(self, words: list[str]) -> Predicate | None:
        """ "a wild animal", "a musical toy": an adjective and a category, both readable."""
        kept = _content(words)
        if not 2 <= len(kept) <= 4 or kept[-1] in ("inside", "outside", "there"):
            return None
        if not _NOT_QUALIFIED.isdisjoint(kept):
            return None
        for cut in range(1, len(kept)):
            adjective, noun = self._wording("be", kept[:cut]), self._wording("be", kept[cut:])
            if noun == Predicate("attribute", "object"):
                noun = adjective
            if noun is None and cut == len(kept) - 1 and _HEADS.get(kept[-1], "x") == "":
                noun = adjective
            if adjective is not None and noun is not None:
                same = adjective == noun
                return adjective if same else Predicate("and", parts=(adjective, noun))
        return None

    def _size(self, words: list[str]) -> Predicate | None:
        """ "bigger than a car": a wording, or the size of a reference."""
        if "than" not in words[:5]:
            return None
        at = words.index("than")
        comparison = [w for w in words[:at] if w in (*_BIGGER, *_SMALLER)]
        if len(comparison) != 1 or len(words) == at + 1:
            return None
        drop = ("a", "an", "the", "average", "your", "my", "typical", "normal", "standard",
                "regular", "oven")  # fmt: skip
        name = " ".join(w for w in words[at + 1 :] if w not in drop)
        sizes = self.table.references
        number = sizes.get(name, sizes.get(name.removesuffix("s")))
        kind: PredicateKind = "bigger" if comparison[0] in _BIGGER else "smaller"
        other = None if number is None else Predicate(kind, number=number)
        return self._wording("be", words) or other


def _group_of(match: re.Match[str], number: re.Match[str]) -> str:
    return match[int(number[1])] or ""


def _content(words: list[str]) -> list[str]:
    return [word for word in words if normal([word])]


@cache
def _reader(table: KnowledgeTable) -> _Reader:
    return _Reader(table)
