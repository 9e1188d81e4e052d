"""Normalized text, in which equal guesses are equal.

A guess is right only if the whole normalized text equals the secret or one of its declared
synonyms; it is not enough that it contains the secret or lists it among others.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

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
    said = normalize(guess)
    return bool(said) and any(said == normalize(name) for name in (secret, *synonyms))
