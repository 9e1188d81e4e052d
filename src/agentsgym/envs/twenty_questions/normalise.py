"""Normalised text: what makes two guesses the same guess.

Keeps one rule: a guess is right only when the whole normalised text equals the secret or one of its
declared synonyms; never because it contains the secret or lists it among others.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

MAX_GUESS = 80
"""Longer texts are no guess; normalising them gives the empty string."""

_ARTICLES = {"a", "an", "the"}
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_LIST = re.compile(r"[,;/|&+\n]")


def fold(text: str) -> str:
    """Lower case without accents; unchanged otherwise."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).lower()


@lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """The text without case, accents, punctuation, hyphens, spaces and leading articles.

    Spaces and hyphens vanish, so that "ice-cream", "ice cream" and "Icecream" agree. A list
    ("apple, banana") and a text of more than `MAX_GUESS` characters give the empty string, which
    matches nothing.
    """
    stripped = text.strip()
    if len(stripped) > MAX_GUESS or _LIST.search(stripped):
        return ""
    words = _NOT_WORD.sub(" ", fold(stripped).replace("'", "")).split()
    while len(words) > 1 and words[0] in _ARTICLES:
        words = words[1:]
    return "".join(words)


def matches(guess: str, secret: str, synonyms: Iterable[str] = ()) -> bool:
    """Whether the guess is the secret or a declared synonym of it, after normalisation."""
    said = normalise(guess)
    return bool(said) and any(said == normalise(name) for name in (secret, *synonyms))
