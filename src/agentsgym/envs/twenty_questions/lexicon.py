"""The lexicon: a table's wordings and a question's words, in normal form."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from .knowledge import KnowledgeTable
from .word_lists import CONTRACTIONS, LEAD
from .wording import normal, tokens

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
