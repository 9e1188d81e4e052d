"""A language drawn from a seed: its words are syllables, its sentences patterns of English words.

Words and patterns belong to one of three parts, to train on, to validate on, and to test on: a hash
of each says to which one. So no word and no pattern of one part occurs in another one. A pattern is
composed of parts of sentences, which have alternatives (`patterns.json`): those that are held out
are new combinations of words that are trained on.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from importlib import resources
from typing import Any, Literal

Part = Literal["train", "validate", "test"]
PARTS: tuple[Part, ...] = ("train", "validate", "test")
SYLLABLES = tuple(c + v for c in "bdfghjklmnprstv" for v in "aeiou")
_EIGHTHS: tuple[Part, ...] = ("test", "test", "validate", *("train",) * 5)
_FILE = resources.files("agentsgym.envs.exploration").joinpath("patterns.json")
_GRAMMAR: Mapping[str, Any] = json.loads(_FILE.read_text("utf-8"))
ROLES: tuple[str, ...] = tuple(_GRAMMAR["patterns"])
"""What a sentence can say."""
_PART = re.compile(r"<([^>]+)>")


def part_of(text: str) -> Part:
    """The part that a word or pattern belongs to: a quarter is for testing, an eighth for
    validating."""
    return _EIGHTHS[blake2b(text.encode(), digest_size=1).digest()[0] % len(_EIGHTHS)]


@lru_cache(maxsize=3)
def lexicon(part: Part) -> tuple[str, ...]:
    """All words of a part: two different syllables with a hyphen between them."""
    words = (f"{a}-{b}" for a in SYLLABLES for b in SYLLABLES if a != b)
    return tuple(word for word in words if part_of(word) == part)


@lru_cache
def patterns(role: str, part: Part) -> tuple[str, ...]:
    """All patterns of a part for what a sentence says: `{…}` are the words of the game in them."""
    texts = (text for pattern in _GRAMMAR["patterns"][role] for text in _composed(pattern))
    return tuple(t[0].upper() + t[1:] for t in dict.fromkeys(texts) if part_of(t) == part)


def _composed(text: str) -> Iterator[str]:
    """A text with each of the alternatives for its parts."""
    part = _PART.search(text)
    if part is None:
        yield text
        return
    for chosen in _GRAMMAR["parts"][part[1]]:
        yield from _composed(text[: part.start()] + chosen + text[part.end() :])


class Language:
    """The words and sentences of one task, drawn by `rng` from a part of the words and of the
    patterns. No two of its names begin, or end, with the same syllable, so that a name is known by
    any of its syllables. The actions are words, too: `look` informs, `pay` is paid."""

    def __init__(self, rng: random.Random, words: Part, patterns: Part) -> None:
        self.rng = rng
        self._lexicon = lexicon(words)
        self._patterns = patterns
        self._firsts: set[str] = set()
        self._lasts: set[str] = set()
        self.look, self.pay = self.names(2)

    def names(self, count: int) -> list[str]:
        """New names."""
        return [self._name() for _ in range(count)]

    def _name(self) -> str:
        while True:
            word = self.rng.choice(self._lexicon)
            first, last = word.split("-")
            if first not in self._firsts and last not in self._lasts:
                self._firsts.add(first)
                self._lasts.add(last)
                return word

    def any_names(self, count: int) -> list[str]:
        """Different names that may begin like others, as most of them never occur."""
        return self.rng.sample(self._lexicon, count)

    def pattern(self, role: str) -> str:
        """A pattern for what a sentence says."""
        return self.rng.choice(patterns(role, self._patterns))

    def say(self, role: str, **words: str) -> str:
        """A sentence with these words."""
        return self.pattern(role).format(look=self.look, pay=self.pay, **words)
