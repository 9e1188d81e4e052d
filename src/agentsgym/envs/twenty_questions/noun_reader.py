"""Reads words that need no grammar: wordings, secrets, categories, sizes, letters and counts."""

from __future__ import annotations

from .knowledge import KnowledgeTable
from .lexicon import lexicon
from .predicate import Predicate
from .word_lists import BIGGER, CATEGORY_FIRST, HEADS, PLURAL_HINT, PREPOSITIONS, SMALLER
from .wording import normal, stem


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
        if PLURAL_HINT.fullmatch(words[1]):
            return Predicate("letters", number=float(stem(words[0])))
        return Predicate("words", number=float(stem(words[0]))) if unit == "word" else None
