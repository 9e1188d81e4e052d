"""Questions in free English to predicates.

The grammar is small and looks words up: a question is one of a few sentence forms ("is it ...",
"does it have ...", "would you find it in ...") around a phrase; the phrase is found among the
table's wordings for that form, its secrets, or WordNet's categories. What is not found is not
guessed at: `parse` returns None and the answer is "I don't know". Every step is linear in the
question's length, which is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from weakref import WeakKeyDictionary

from .knowledge import KnowledgeTable
from .predicate import Predicate
from .wording import normal, stem, tokens

MAX_CHARS = 200
MAX_WORDS = 30

Lexicon = Mapping[str, str]
_LEXICONS: WeakKeyDictionary[KnowledgeTable, Lexicon] = WeakKeyDictionary()

_CONTRACTIONS = {
    "isn't": "is not", "aren't": "are not", "doesn't": "does not", "don't": "do not",
    "can't": "can not", "cannot": "can not", "couldn't": "could not", "wouldn't": "would not",
    "hasn't": "has not", "haven't": "have not", "it's": "it is", "wasn't": "was not",
    "won't": "will not", "isnt": "is not", "doesnt": "does not", "cant": "can not",
    "shouldn't": "should not", "they're": "they are", "that's": "that is", "didn't": "did not",
}  # fmt: skip
_BE = {"is", "are", "was", "were"}
_AUX = {"does", "do", "did", "can", "could", "will", "would", "might", "may", "should", "must",
        "has", "have"}  # fmt: skip
_IT = {"it", "this", "that", "they", "he", "she", "these", "one", "those", "its"}
_NOUN_SUBJECT = {
    "object", "item", "thing", "word", "secret", "answer", "person", "animal", "place", "creature",
    "mystery", "things", "objects", "job", "food", "plant", "someone", "individual", "vehicle",
    "building", "device", "tool", "character",
}  # fmt: skip
_YOU = {"you", "i", "we", "people", "one", "someone", "somebody", "humans", "human", "person",
        "anyone", "everyone", "anybody", "everybody", "man", "adults"}  # fmt: skip
_CHILDREN = {"children", "kids", "child", "kid"}
_LEAD = {"so", "ok", "okay", "well", "hmm", "and", "then", "now", "question", "alright", "please",
         "hm", "um", "first", "next", "but"}  # fmt: skip
_NOT_FOR_CHILDREN = {"drink", "weapon", "use_cutting", "money_like", "use_cooking", "vehicle"}
_HEADS = {
    "something": "", "anything": "", "thing": "", "object": "object", "item": "", "things": "",
    "someone": "person", "somebody": "person", "person": "person", "people": "person",
    "somewhere": "place", "place": "place", "animal": "animal", "creature": "animal",
    "one": "", "profession": "job", "job": "job", "occupation": "job",
    "device": "device", "tool": "tool", "food": "food", "plant": "plant",
    "vehicle": "vehicle", "building": "building", "machine": "machine",
}  # fmt: skip
_MODAL = {"can", "could", "would", "might", "will", "may", "do", "should", "does", "usually",
          "often", "normally", "typically"}  # fmt: skip
_BIGGER = {"bigger", "larger", "taller", "heavier", "longer", "wider", "greater"}
_SMALLER = {"smaller", "shorter", "lighter", "tinier", "littler", "narrower"}
_LOCATED = {"found", "located", "kept", "seen", "stored", "used", "placed", "situated", "living",
            "present", "inside", "somewhere", "native", "sold", "in", "on", "at"}  # fmt: skip
_PREPOSITIONS = {"in", "inside", "on", "at", "near", "under", "around", "within", "into"}
_WHO = {"that", "which", "who"}
_SENSE = {"taste", "tastes", "feel", "feels", "look", "looks", "smell", "smells", "seem", "sound"}
_PLURAL_HINT = re.compile(r"\bletters?\b")
_CATEGORY_FIRST = {"flower", "boy", "girl"}  # secrets whose name is asked as a category
_SPLITTERS = {"with", "that", "which", "who", "used", "found", "made", "worn", "kept"}
_PERSON = {"he", "she", "they", "person", "someone", "individual", "job", "profession"}
_LOOKS = {"color", "colour", "shape", "taste", "texture", "material"}
_TAILS = [
    tail.split()
    for tail in (
        "to function", "to operate", "to work", "to run", "at work", "purposes", "purpose",
        "setting", "settings", "by humans", "by people", "by most people", "by human beings",
        "in taste", "in nature", "in general", "in size", "there", "inside", "environment", "for",
        "of some kind", "in everyday life", "in daily life", "on it", "for humans", "for people",
    )
]  # fmt: skip


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


def parse(question: str, table: KnowledgeTable) -> Predicate | None:
    """What the question asks about the secret, or None where it cannot be read.

    Never raises; a text that is empty, longer than `MAX_CHARS`, several questions in one or no
    question at all is not read.
    """
    text = question.strip()
    if not text or len(text) > MAX_CHARS or "?" in text.rstrip("? !."):
        return None
    return _parse(text, table)


@lru_cache(maxsize=8192)
def _parse(text: str, table: KnowledgeTable) -> Predicate | None:
    key = None if "," in text else lexicon(table).get(f"whole:{' '.join(tokens(text))}")
    if key is not None:
        return Predicate("attribute", key)
    words = _words(text)
    return _Reader(table).question(words) if 2 <= len(words) <= MAX_WORDS else None


def _words(text: str) -> list[str]:
    """Words with contractions written out; a comma stays as a word of its own."""
    words: list[str] = []
    for word in tokens(text.replace(",", " and-comma ")):
        words += _CONTRACTIONS.get(word, word).split()
    joined = " ".join(words).replace("and comma", ",").split()
    while joined and (joined[0] in _LEAD or joined[0] == ","):
        joined.pop(0)
    return [word for word in joined if word != "please"]


Reading = Callable[[list[str]], Predicate | None]


class _Reader:
    """Reads one question against one table."""

    def __init__(self, table: KnowledgeTable) -> None:
        self.table = table
        self.lexicon = lexicon(table)

    # -- sentence forms --------------------------------------------------------------------

    def question(self, words: list[str]) -> Predicate | None:
        if "," in words:
            return None
        head, rest = words[0], words[1:]
        if head in _IT and rest and rest[0] in _BE:
            return self._negatable(rest[1:], self.be)
        if head in _BE and rest[0] == "there":
            return self._negatable(rest[1:], self.there)
        if head not in _BE | _AUX:
            return None
        if rest[0] == "not":
            after = self._question_body(head, rest[1:])
            return after.negated() if after else None
        return self._question_body(head, rest)

    def _question_body(self, head: str, rest: list[str]) -> Predicate | None:
        if not rest:
            return None
        if head in _AUX | {"are", "is"}:
            human = self._people(head, rest)
            if human is not None:
                return human
        size = self._subject(rest)
        body = rest[size:]
        if size == 0 or not body:
            return None
        if head not in _BE and any(word in _PERSON for word in rest[:size]):
            about_person = self.find("who", body)
            if about_person is not None:
                return about_person
        if head in _BE:
            return self._negatable(body, self.be)
        if head in ("has", "have") and body[0] != "been":
            return self._negatable(body[1:] if body[0] == "got" else body, self.have)
        if body[0] == "be":
            return self._negatable(body[1:], self._could_be)
        return self._negatable(body, self.do)

    def _subject(self, words: list[str]) -> int:
        """How many words name the secret: "it", "this person", "the secret word"; 0 if none do."""
        if words[0] in ("the", "this", "that", "these") and len(words) > 1:
            size = 1
            while size < len(words) and size < 3 and words[size] in _NOUN_SUBJECT:
                size += 1
            if size > 1:
                return size
        if words[0] == "its" and len(words) > 2 and words[1] in _LOOKS:
            return 2
        return 1 if words[0] in _IT else 0

    def _people(self, head: str, words: list[str]) -> Predicate | None:
        """ "can you ...", "do most people ...", "would a child ..."; None if nobody is named."""
        start = 0
        while start < len(words) and words[start] in ("most", "many", "a", "some", "an", "the"):
            start += 1
        if start + 1 >= len(words):
            return None
        who, body = words[start], words[start + 1 :]
        if (who, body[0]) == ("sick", "people"):
            return self.find("you", [*body[1:], "when", "sick"])
        if who in ("fish", "animals") and body[0] in ("live", "swim", "stay"):
            return self.find("have", ["fish", "in"] if who == "fish" else ["animals"])
        if who not in _YOU | _CHILDREN or (who == "one" and head in _BE):
            return None
        if who == "person" and words[0] in ("the", "this"):
            return None
        negative = body[0] == "not"
        body = body[1:] if negative else body
        while body and body[0] in ("be", "able", "to", "usually", "ever", "normally", "typically"):
            body = body[1:]
        found = self.children(body) if who in _CHILDREN else self.you(body)
        return found.negated() if found and negative else found

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

    # -- phrases ---------------------------------------------------------------------------

    def find(self, form: str, words: list[str]) -> Predicate | None:
        key = self.lexicon.get(f"{form}:{normal(words)}") if words else None
        if key is None and words and any(w in ("inside", "within") for w in words[:-1]):
            plain = ["in" if w in ("inside", "within") else w for w in words]
            key = self.lexicon.get(f"{form}:{normal(plain)}")
        return Predicate("attribute", key) if key else None

    def _tail(self, words: list[str]) -> list[str]:
        """The words without a closing phrase that adds nothing; empty where there is none."""
        for tail in _TAILS:
            if len(words) > len(tail) and words[-len(tail) :] == tail:
                return words[: -len(tail)]
        return []

    def be(self, words: list[str]) -> Predicate | None:
        """What follows "is it"."""
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

    def _without_tail(self, words: list[str], read: Reading) -> Predicate | None:
        shorter = self._tail(words)
        return read(shorter) if shorter else None

    def _could_be(self, words: list[str]) -> Predicate | None:
        """What follows "can it be": a state, or something done to it."""
        return self.be(words) or self.find("you", words)

    def do(self, words: list[str]) -> Predicate | None:
        """What follows "does it" or "can it"."""
        first, rest = words[0], words[1:]
        if first in ("have", "has", "got", "contain", "possess") and rest:
            found = self.have(rest)
            if found is not None or first == "have":
                return found
        if first in ("tend", "need", "like", "want", "get") and rest[:1] == ["to"]:
            words = rest[1:] or words
        found = self.find("do", words)
        if found is None and first in _SENSE and rest:
            found = self.find("be", rest)
        if found is None and first in ("belong", "live", "go", "exist", "come", "grow"):
            found = self.be(rest) if rest and rest[0] in _PREPOSITIONS else None
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
        """What follows "does it have"."""
        return self.find("have", words) or self._letter(words)

    def you(self, words: list[str]) -> Predicate | None:
        """What follows "can you" or "do people"."""
        if not words:
            return None
        first, rest = words[0], [w for w in words[1:] if w not in ("it", "them", "this")]
        found = self.find("you", [first, *rest]) or self.find("use", [first, *rest])
        if found is not None or not rest:
            return found
        if first in ("use", "need") and rest[0] in ("for", "to", "when", "while", "as", "in", "at"):
            found = self.find("use", rest[1:]) or self._where(rest)
        elif rest[0] in _PREPOSITIONS:
            found = self._where(rest)
        return found

    def children(self, words: list[str]) -> Predicate | None:
        """What follows "do children": what people in general do, where it is for children too."""
        if words and words[0] in ("use", "like", "enjoy", "love", "want"):
            return self.find("you", ["give", "to", "child"])
        found = self.you(words)
        return None if found is None or found.attribute in _NOT_FOR_CHILDREN else found

    def there(self, words: list[str]) -> Predicate | None:
        """What follows "is there" or "are there"."""
        for tail in (["there"], ["in", "it"], ["inside"], ["on", "it"], ["in", "this", "place"],
                     ["inside", "it"], ["in", "there"], ["at", "this", "place"]):  # fmt: skip
            if len(words) > len(tail) and words[-len(tail) :] == tail:
                words = words[: -len(tail)]
                break
        return self.find("there", words) or self.find("have", words)

    def _split(self, words: list[str]) -> Predicate | None:
        """ "an instrument with strings", "a wild animal found in Africa": both must hold."""
        for i, word in enumerate(words[1:-1], start=1):
            if word in _SPLITTERS:
                head = [w for w in words[:i] if normal([w])]
                if not head or (len(head) == 1 and not _HEADS.get(head[0], "x")):
                    return None
                base = self.find("be", head) or self._qualified(head)
                clause = self._clause(words[i:] if word not in _WHO else words[i + 1 :], False)
                if base is None or clause is None or base == clause:
                    return clause if base is not None else None
                return Predicate("and", parts=(base, clause))
        return None

    # -- parts -----------------------------------------------------------------------------

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
        if words[0] in _PREPOSITIONS and len(words) > 1:
            return self.find("loc", words[1:]) or self.find("loc", words)
        return self.find("loc", words)

    def _place(self, words: list[str]) -> Predicate | None:
        i = 0
        while i < len(words) - 1 and (words[i] in _LOCATED or normal(words[i : i + 1]) == ""):
            if words[i] in _PREPOSITIONS:
                break
            i += 1
        if i == 0 and words[0] not in _PREPOSITIONS:
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
        if start >= len(words) - 1 or words[start] not in _HEADS:
            return None
        category, rest = _HEADS[words[start]], words[start + 1 :]
        where = rest[0] == "where"
        if rest[0] in ("that", "which", "who", "where", "whose") and len(rest) > 1:
            rest = rest[1:]
        elif rest[0] not in _YOU | {"used", "made", "found", "with", "kept", "worn", "to", "for"}:
            return self.be(rest) if not category else None
        clause = self._clause(rest, where)
        base = self.find("be", [category]) if category else None
        if clause is None or base is None or clause == base:
            return clause
        return Predicate("and", parts=(base, clause))

    def _clause(self, words: list[str], where: bool) -> Predicate | None:
        first = words[0]
        if first in _YOU | _CHILDREN and len(words) > 1:
            body = words[1:]
            while len(body) > 1 and (body[0] in _MODAL or body[:1] == ["to"]):
                body = body[1:]
            if body[0] == "go" and body[1:2] == ["to"] and len(body) > 2:
                body = body[2:]
            return self.you([*body, "there"]) or self.you(body) if where else self.you(body)
        if first in _BE and len(words) > 1:
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

    def _size(self, words: list[str]) -> Predicate | None:
        if "than" not in words[:5]:
            return None
        at = words.index("than")
        comparison = [w for w in words[:at] if w in _BIGGER | _SMALLER]
        if len(comparison) != 1 or len(words) == at + 1:
            return None
        exact = self.find("be", words)
        if exact is not None:
            return exact
        number = self._reference(words[at + 1 :])
        if number is None:
            return None
        return Predicate("bigger" if comparison[0] in _BIGGER else "smaller", number=number)

    def _reference(self, words: list[str]) -> float | None:
        drop = ("a", "an", "the", "average", "your", "my", "typical", "normal", "standard",
                "regular", "oven")  # fmt: skip
        name = " ".join(w for w in words if w not in drop)
        for candidate in (name, name.removesuffix("s")):
            if candidate in self.table.references:
                return self.table.references[candidate]
        return None

    def _named(self, words: list[str]) -> str | None:
        if len(words) > 4 or any(w in ("and", "or") for w in words):
            return None
        text = " ".join(words)
        return self.table.canonical(text) or self.table.canonical(text.removesuffix("s"))

    def _secret(self, words: list[str]) -> Predicate | None:
        """ "a rose", "the sun": the article tells a secret from a colour or a material."""
        if words[0] not in ("a", "an", "the") or len(words) == 1:
            return None
        name = self._named(words[1:])
        if name is None or (name in _CATEGORY_FIRST and self.find("be", words)):
            return None
        return Predicate("secret", name)

    def _noun(self, words: list[str]) -> Predicate | None:
        """A secret or a category of WordNet's."""
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
        if any(word in {"and", "or", "not", "than"} | _PREPOSITIONS for word in kept):
            return None
        for cut in range(1, len(kept)):
            adjective = self.find("be", kept[:cut])
            noun = self.find("be", kept[cut:])
            if noun == Predicate("attribute", "object"):
                noun = adjective
            if noun is None and cut == len(kept) - 1 and kept[-1] in _HEADS:
                noun = adjective if not _HEADS[kept[-1]] else None
            if adjective is not None and noun is not None:
                same = adjective == noun
                return adjective if same else Predicate("and", parts=(adjective, noun))
        return None

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
        if _PLURAL_HINT.fullmatch(words[1]):
            return Predicate("letters", number=float(stem(words[0])))
        return Predicate("words", number=float(stem(words[0]))) if unit == "word" else None
