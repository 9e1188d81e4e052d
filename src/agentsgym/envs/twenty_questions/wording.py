"""Normal form of words, in which questions and the table's wordings are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .normalize import fold

_WORD = re.compile(r"[a-z0-9$]+(?:'[a-z]+)?")
_FILLERS = frozenset({
    "a", "an", "typical", "average", "the", "some", "any", "my", "your", "our", "their", "his",
    "her", "its", "itself", "usually", "typically", "often", "normally", "generally", "mostly",
    "commonly", "mainly", "primarily", "really", "ever", "actually", "always", "sometimes",
    "also", "very", "quite", "frequently", "regularly", "probably", "likely", "considered",
    "known", "called", "please", "it", "kind", "kinds", "sort", "sorts", "type", "types",
    "form", "piece", "pieces", "item", "items", "example", "such", "just", "still", "naturally",
    "traditionally", "basically", "specifically", "only", "yourself", "own",
})  # fmt: skip
_NUMBERS = {"one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6",
            "seven": "7", "eight": "8", "nine": "9", "ten": "10"}  # fmt: skip
_IRREGULAR = {
    "feet": "foot", "teeth": "tooth", "leaves": "leaf", "men": "man", "women": "woman",
    "mice": "mouse", "geese": "goose", "knives": "knife", "lives": "live", "children": "child",
    "worn": "wear", "driven": "drive", "ridden": "ride", "written": "write", "eaten": "eat",
    "drunk": "drunk", "thrown": "throw", "grown": "grow", "people": "people", "made": "make",
    "kept": "keep", "found": "find", "seen": "see", "built": "build", "flies": "fly",
    "used": "use", "using": "use", "glasses": "glasses", "clothes": "clothes", "persons": "people",
    "humans": "people", "human": "people", "person": "person", "kids": "child", "kid": "child",
    "gray": "grey", "color": "colour", "colors": "colour", "colored": "coloured", "does": "do",
    "has": "have", "is": "be", "are": "be", "this": "this", "bus": "bus", "gas": "gas",
    "grass": "grass", "glass": "glass", "dress": "dress", "was": "be", "an": "a",
}  # fmt: skip
_VOWELS = "aeiouy"


def tokens(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return _WORD.findall(fold(text).replace("’", "'").replace("-", " "))


def stem(word: str) -> str:
    """A crude stem: it only has to be equal for the inflections of one word."""
    word = word.removesuffix("'s")
    if word in _IRREGULAR:
        return _tidy(_IRREGULAR[word])
    if word in _NUMBERS:
        return _NUMBERS[word]
    for suffix, least, instead in (
        ("ies", 5, "y"), ("ied", 5, "y"), ("sses", 6, "ss"), ("shes", 6, "sh"), ("ches", 6, "ch"),
        ("xes", 5, "x"), ("ing", 6, ""), ("ed", 5, ""),
    ):  # fmt: skip
        if len(word) >= least and word.endswith(suffix):
            base = word[: -len(suffix)] + instead
            if not any(v in base for v in _VOWELS):
                continue
            return _tidy(base)
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _tidy(word)


def _tidy(base: str) -> str:
    if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsez":
        base = base[:-1]
    return base[:-1] if len(base) > 3 and base.endswith("e") else base


def normal(words: Iterable[str]) -> str:
    """The words' stems without fillers, joined by spaces."""
    listed = list(words)
    kept = [
        stem(word)
        for i, word in enumerate(listed)
        if word not in _FILLERS and not (word == "of" and i and listed[i - 1] in _FILLERS)
    ]
    return " ".join(kept)
