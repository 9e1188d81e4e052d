"""Words: the normal form in which questions, wordings and guesses are compared.

A guess is right only if the whole normalized text equals the secret or one of its declared
synonyms; it is not enough that it contains the secret or lists it among others.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources

_TEXT = resources.files("agentsgym.envs.twenty_questions").joinpath("data", "grammar.json")
GRAMMAR = json.loads(_TEXT.read_text("utf-8"))


FILLERS = frozenset(GRAMMAR["classes"]["filler"].split())
MAX_GUESS = 80
"""Longer texts are not guesses; they normalize to the empty string."""

_ARTICLES = {"a", "an", "the"}
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_LIST = re.compile(r"[,;/|&+\n]")


def fold(text: str) -> str:
    """Lower case without accents; unchanged otherwise."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).lower()


@lru_cache(maxsize=4096)
def normalize(text: str) -> str:
    """The text without case, accents, punctuation, hyphens, spaces and leading articles.

    Spaces and hyphens are removed, so that "ice-cream", "ice cream" and "Icecream" are equal. A
    list ("apple, banana") and a text of more than `MAX_GUESS` characters give the empty string,
    which matches nothing.
    """
    stripped = text.strip()
    if len(stripped) > MAX_GUESS or _LIST.search(stripped):
        return ""
    words = _NOT_WORD.sub(" ", fold(stripped).replace("'", "")).split()
    while len(words) > 1 and words[0] in _ARTICLES:
        words = words[1:]
    return "".join(words)


def matches(guess: str, secret: str, synonyms: Iterable[str] = ()) -> bool:
    """Whether the guess equals the secret or a declared synonym after normalization."""
    answer = normalize(guess)
    return bool(answer) and any(answer == normalize(name) for name in (secret, *synonyms))


_WORD = re.compile(r"[a-z0-9$]+(?:'[a-z]+)?")
_NUMBERS: dict[str, str] = GRAMMAR["numbers"]
_IRREGULAR: dict[str, str] = GRAMMAR["irregular"]
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
        if word not in FILLERS and not (word == "of" and i and listed[i - 1] in FILLERS)
    ]
    return " ".join(kept)
