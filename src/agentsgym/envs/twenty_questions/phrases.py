"""Reads the phrase after the subject of a question ("a wild animal", "used for cooking"): a table's
wordings, secrets, categories, sizes, letters and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

from agentsgym.envs.twenty_questions.knowledge import KnowledgeTable, Predicate
from agentsgym.envs.twenty_questions.words import (
    BE,
    BIGGER,
    CATEGORY_FIRST,
    CHILDREN,
    CONTRACTIONS,
    HEADS,
    LEAD,
    LOCATED,
    MODAL,
    NOT_FOR_CHILDREN,
    PREPOSITIONS,
    SENSE,
    SMALLER,
    SPLITTERS,
    TAILS,
    WHO,
    YOU,
    normal,
    stem,
    tokens,
)

Lexicon = Mapping[str, str]
_LEXICONS: WeakKeyDictionary[KnowledgeTable, Lexicon] = WeakKeyDictionary()


def lexicon(table: KnowledgeTable) -> Lexicon:
    """The table's wordings in normal form: `form:phrase` to the attribute's key."""
    if table not in _LEXICONS:
        found: dict[str, str] = {}
        for attribute in table.attributes:
            for wording in table.wordings[attribute.key]:
                form, _, phrase = wording.partition(":")
                stems = normal(tokens(phrase))
                if stems:
                    found.setdefault(f"{form}:{stems}", attribute.key)
        for attribute in table.attributes:
            found[f"whole:{' '.join(tokens(attribute.question))}"] = attribute.key
        _LEXICONS[table] = found
    return _LEXICONS[table]


def question_words(text: str) -> list[str]:
    """A question's words with contractions expanded; a comma is a separate word."""
    words: list[str] = []
    for word in tokens(text.replace(",", " and-comma ")):
        words += CONTRACTIONS.get(word, word).split()
    joined = " ".join(words).replace("and comma", ",").split()
    while joined and (joined[0] in LEAD or joined[0] == ","):
        joined.pop(0)
    return [word for word in joined if word != "please"]


class NounReader:
    """Looks words up in one table."""

    def __init__(self, table: KnowledgeTable) -> None:
        self.table = table
        self.lexicon = lexicon(table)

    def find(self, form: str, words: list[str]) -> Predicate | None:
        key = self.lexicon.get(f"{form}:{normal(words)}") if words else None
        if key is None and words and any(w in ("inside", "within") for w in words[:-1]):
            plain = ["in" if w in ("inside", "within") else w for w in words]
            key = self.lexicon.get(f"{form}:{normal(plain)}")
        return Predicate("attribute", key) if key else None

    def _named(self, words: list[str]) -> str | None:
        if len(words) > 4 or any(w in ("and", "or") for w in words):
            return None
        text = " ".join(words)
        return self.table.canonical(text) or self.table.canonical(text.removesuffix("s"))

    def _secret(self, words: list[str]) -> Predicate | None:
        """ "a rose", "the sun": the article distinguishes a secret from a color or a material."""
        if words[0] not in ("a", "an", "the") or len(words) == 1:
            return None
        name = self._named(words[1:])
        if name is None or (name in CATEGORY_FIRST and self.find("be", words)):
            return None
        return Predicate("secret", name)

    def _noun(self, words: list[str]) -> Predicate | None:
        """A secret or a WordNet category."""
        name = self._named(words)
        if name is not None:
            return Predicate("secret", name)
        kept = [w for w in words if normal([w]) or w == "of"]
        while kept and kept[0] == "of":
            kept = kept[1:]
        text = " ".join(kept)
        if not kept or len(kept) > 3:
            return None
        singular = " ".join([*kept[:-1], kept[-1].removesuffix("s")])
        for word in (text, singular):
            if self.table.taxonomy.knows(word):
                return Predicate("is_a", word)
        return None

    def _qualified(self, words: list[str]) -> Predicate | None:
        """ "a wild animal", "a musical toy": an adjective and a category, both readable."""
        kept = [w for w in words if normal([w])]
        if not 2 <= len(kept) <= 4 or kept[-1] in ("inside", "outside", "there"):
            return None
        if any(word in {"and", "or", "not", "than"} | PREPOSITIONS for word in kept):
            return None
        for cut in range(1, len(kept)):
            adjective = self.find("be", kept[:cut])
            noun = self.find("be", kept[cut:])
            if noun == Predicate("attribute", "object"):
                noun = adjective
            if noun is None and cut == len(kept) - 1 and kept[-1] in HEADS:
                noun = adjective if not HEADS[kept[-1]] else None
            if adjective is not None and noun is not None:
                same = adjective == noun
                return adjective if same else Predicate("and", parts=(adjective, noun))
        return None

    def _reference(self, words: list[str]) -> float | None:
        drop = ("a", "an", "the", "average", "your", "my", "typical", "normal", "standard",
                "regular", "oven")  # fmt: skip
        name = " ".join(w for w in words if w not in drop)
        for candidate in (name, name.removesuffix("s")):
            if candidate in self.table.references:
                return self.table.references[candidate]
        return None

    def _size(self, words: list[str]) -> Predicate | None:
        if "than" not in words[:5]:
            return None
        at = words.index("than")
        comparison = [w for w in words[:at] if w in BIGGER | SMALLER]
        if len(comparison) != 1 or len(words) == at + 1:
            return None
        exact = self.find("be", words)
        if exact is not None:
            return exact
        number = self._reference(words[at + 1 :])
        if number is None:
            return None
        return Predicate("bigger" if comparison[0] in BIGGER else "smaller", number=number)

    def _letter(self, words: list[str]) -> Predicate | None:
        text = [w for w in words if w not in ("the", "with", "in", "its", "name", "a", "an")]
        if len(text) == 3 and text[1] == "letter" and len(text[2]) == 1:
            start = stem(text[0]) in ("start", "begin")
            return Predicate("starts_with" if start else "has_letter", text[2])
        if len(text) == 2 and text[0] in ("start", "begin") and len(words[-1]) == 1:
            return Predicate("starts_with", words[-1])
        if len(text) == 2 and text[0] == "letter" and len(text[1]) == 1:
            return Predicate("has_letter", text[1])
        return self._count(text)

    def _count(self, words: list[str]) -> Predicate | None:
        if len(words) != 2 or not stem(words[0]).isdecimal() or len(words[0]) > 6:
            return None
        unit = stem(words[1])
        if words[1] in ("letter", "letters"):
            return Predicate("letters", number=float(stem(words[0])))
        return Predicate("words", number=float(stem(words[0]))) if unit == "word" else None


Reading = Callable[[list[str]], Predicate | None]


class PhraseReader(NounReader):
    """Reads phrases with one table. A method tries its readings in order: the first one counts."""

    def be(self, words: list[str]) -> Predicate | None:
        """Reads the words after "is it"."""
        return (
            self._size(words)
            or self._secret(words)
            or self.find("be", words)
            or self._split(words)
            or self._used(words)
            or self._place(words)
            or self._made(words)
            or self._able(words)
            or self._relative(words)
            or self._count(words)
            or self._noun(words)
            or self._qualified(words)
            or self._without_tail(words, self.be)
        )

    def _could_be(self, words: list[str]) -> Predicate | None:
        """Reads the words after "can it be": a state, or something done to it."""
        return self.be(words) or self.find("you", words)

    def do(self, words: list[str]) -> Predicate | None:
        """Reads the words after "does it" or "can it"."""
        first, rest = words[0], words[1:]
        if first in ("have", "has", "got", "contain", "possess") and rest:
            found = self.have(rest)
            if found is not None or first == "have":
                return found
        if first in ("tend", "need", "like", "want", "get") and rest[:1] == ["to"]:
            words = rest[1:] or words
        found = self.find("do", words)
        if found is None and first in SENSE and rest:
            found = self.find("be", rest)
        if found is None and first in ("belong", "live", "go", "exist", "come", "grow"):
            found = self.be(rest) if rest and rest[0] in PREPOSITIONS else None
        if found is None and first in ("start", "begin", "starts", "begins", "contain", "include"):
            found = self._letter(words)
        if found is None and first in ("help", "helps") and rest[:1] == ["you"]:
            found = self.find("use", rest[1:])
        if found is None and first in ("involve", "involves", "require", "requires") and rest:
            found = self.find("do", rest)
        if found is None and first == "need":
            found = self.find("you", words)
        return found or self._without_tail(words, self.do)

    def have(self, words: list[str]) -> Predicate | None:
        """Reads the words after "does it have"."""
        return self.find("have", words) or self._letter(words)

    def you(self, words: list[str]) -> Predicate | None:
        """Reads the words after "can you" or "do people"."""
        if not words:
            return None
        first, rest = words[0], [w for w in words[1:] if w not in ("it", "them", "this")]
        found = self.find("you", [first, *rest]) or self.find("use", [first, *rest])
        if found is not None or not rest:
            return found
        if first in ("use", "need") and rest[0] in ("for", "to", "when", "while", "as", "in", "at"):
            found = self.find("use", rest[1:]) or self._where(rest)
        elif rest[0] in PREPOSITIONS:
            found = self._where(rest)
        return found

    def children(self, words: list[str]) -> Predicate | None:
        """Reads the words after "do children": actions of people that children do too."""
        if words and words[0] in ("use", "like", "enjoy", "love", "want"):
            return self.find("you", ["give", "to", "child"])
        found = self.you(words)
        return None if found is None or found.attribute in NOT_FOR_CHILDREN else found

    def there(self, words: list[str]) -> Predicate | None:
        """Reads the words after "is there" or "are there"."""
        for tail in (["there"], ["in", "it"], ["inside"], ["on", "it"], ["in", "this", "place"],
                     ["inside", "it"], ["in", "there"], ["at", "this", "place"]):  # fmt: skip
            if len(words) > len(tail) and words[-len(tail) :] == tail:
                words = words[: -len(tail)]
                break
        return self.find("there", words) or self.find("have", words)

    def _split(self, words: list[str]) -> Predicate | None:
        """ "an instrument with strings", "a wild animal found in Africa": both must hold."""
        for i, word in enumerate(words[1:-1], start=1):
            if word in SPLITTERS:
                head = [w for w in words[:i] if normal([w])]
                if not head or (len(head) == 1 and not HEADS.get(head[0], "x")):
                    return None
                base = self.find("be", head) or self._qualified(head)
                clause = self._clause(words[i:] if word not in WHO else words[i + 1 :], False)
                if base is None or clause is None or base == clause:
                    return clause if base is not None else None
                return Predicate("and", parts=(base, clause))
        return None

    def _used(self, words: list[str]) -> Predicate | None:
        start = next((i for i, w in enumerate(words[:3]) if w in ("used", "for", "useful")), None)
        if start is None or any(w in ("not", "something", "found") for w in words[:start]):
            return None
        rest = words[start + 1 :]
        prepositions = ("for", "to", "in", "by", "as", "on", "at", "with", "when", "while")
        if words[start] != "for" and rest[:1] and rest[0] in prepositions:
            return self.find("use", rest[1:]) or self.find("use", rest) or self._where(rest)
        return self.find("use", rest)

    def _where(self, words: list[str]) -> Predicate | None:
        if words[0] in PREPOSITIONS and len(words) > 1:
            return self.find("loc", words[1:]) or self.find("loc", words)
        return self.find("loc", words)

    def _place(self, words: list[str]) -> Predicate | None:
        i = 0
        while i < len(words) - 1 and (words[i] in LOCATED or normal(words[i : i + 1]) == ""):
            if words[i] in PREPOSITIONS:
                break
            i += 1
        if i == 0 and words[0] not in PREPOSITIONS:
            return None
        return self._where(words[i:])

    def _made(self, words: list[str]) -> Predicate | None:
        for i, word in enumerate(words[:4]):
            if word in ("made", "composed", "constructed", "built", "make") and i + 2 < len(words):
                rest = words[i + 1 :]
                while rest and rest[0] in ("out", "up", "of", "from", "with", "mostly", "mainly"):
                    rest = rest[1:]
                return self.find("made", rest)
        return None

    def _able(self, words: list[str]) -> Predicate | None:
        if words[:2] in (["able", "to"], ["capable", "of"], ["known", "to"], ["possible", "to"]):
            rest = words[2:]
            return (self.do(rest) if rest else None) or self.you(rest)
        if words[0] in ("safe", "easy", "common", "normal") and words[1:2] == ["to"]:
            return self.find("be", words)
        return None

    def _relative(self, words: list[str]) -> Predicate | None:
        """ "something (that) you can eat", "an animal that flies", "a place where people work"."""
        start = 1 if words[0] in ("a", "an", "the") else 0
        if start >= len(words) - 1 or words[start] not in HEADS:
            return None
        category, rest = HEADS[words[start]], words[start + 1 :]
        where = rest[0] == "where"
        if rest[0] in ("that", "which", "who", "where", "whose") and len(rest) > 1:
            rest = rest[1:]
        elif rest[0] not in YOU | {"used", "made", "found", "with", "kept", "worn", "to", "for"}:
            return self.be(rest) if not category else None
        clause = self._clause(rest, where)
        base = self.find("be", [category]) if category else None
        if clause is None or base is None or clause == base:
            return clause
        return Predicate("and", parts=(base, clause))

    def _clause(self, words: list[str], where: bool) -> Predicate | None:
        first = words[0]
        if first in YOU | CHILDREN and len(words) > 1:
            body = words[1:]
            while len(body) > 1 and (body[0] in MODAL or body[:1] == ["to"]):
                body = body[1:]
            if body[0] == "go" and body[1:2] == ["to"] and len(body) > 2:
                body = body[2:]
            return self.you([*body, "there"]) or self.you(body) if where else self.you(body)
        if first in BE and len(words) > 1:
            return self._negatable(words[1:], self.be)
        if first in ("has", "have", "with") and len(words) > 1:
            return self.have(words[1:])
        if first in ("can", "could", "will", "does", "might") and len(words) > 1:
            if words[1] == "be" and len(words) > 2:
                return self._could_be(words[2:])
            return self._negatable(words[1:], self.do)
        if first in ("to", "for") and len(words) > 1:
            return self.you(words[1:]) or self.find("use", words[1:])
        return self.be(words) if first in ("used", "made", "found", "kept") else self.do(words)

    def _negatable(self, words: list[str], read: Reading) -> Predicate | None:
        negative = bool(words) and words[0] in ("not", "never")
        body = words[1:] if negative else words
        if not body:
            return None
        found = read(body) or self._joined(body, read)
        return found.negated() if found and negative else found

    def _joined(self, words: list[str], read: Reading) -> Predicate | None:
        """Two readable parts joined by one "and" or "or"; never a choice among secrets."""
        joints = [i for i, word in enumerate(words) if word in ("and", "or")]
        if len(joints) != 1 or not 0 < joints[0] < len(words) - 1:
            return None
        left, right = words[: joints[0]], words[joints[0] + 1 :]
        left = left[1:] if left[0] in ("either", "both") and len(left) > 1 else left
        first = read(left)
        if first is None:
            return None
        second: Predicate | None = None
        for cut in range(len(left) - 1, -1, -1):  # "found in a bedroom or (found in a) kitchen"
            second = read(left[:cut] + right)
            if second is not None:
                break
        if second == first:
            return first
        if second is None or "secret" in (first.kind, second.kind):
            return None
        parts = (first, second)
        return Predicate("and" if words[joints[0]] == "and" else "or", parts=parts)

    def _without_tail(self, words: list[str], read: Reading) -> Predicate | None:
        shorter = self._tail(words)
        return read(shorter) if shorter else None

    def _tail(self, words: list[str]) -> list[str]:
        """The words without a meaningless phrase at the end; empty if there is none."""
        for tail in TAILS:
            if len(words) > len(tail) and words[-len(tail) :] == tail:
                return words[: -len(tail)]
        return []
