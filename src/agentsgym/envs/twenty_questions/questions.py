"""Converts questions in free English to predicates.

The grammar is small and looks words up: a question is one of a few sentence forms ("is it ...",
"does it have ...", "would you find it in ...") around a phrase, and the phrase is looked up in the
table's wordings for that form, its secrets, or WordNet's categories. There is no guessing: for an
unknown phrase `parse` returns None and the answer is "I don't know". Every step is linear in the
question's length, which is limited.
"""

from __future__ import annotations

import re
from functools import lru_cache

from agentsgym.envs.action_text import bare
from agentsgym.envs.twenty_questions.knowledge import KnowledgeTable, Predicate
from agentsgym.envs.twenty_questions.phrases import PhraseReader, lexicon, question_words
from agentsgym.envs.twenty_questions.words import (
    AUX,
    BE,
    CHILDREN,
    IT,
    LOOKS,
    NOUN_SUBJECT,
    PERSON,
    YOU,
    tokens,
)

MAX_CHARS = 200
MAX_WORDS = 30
_SENTENCE_ENDS = re.compile(r"(?<=[.!:])\s+|\n")


def parse(question: str, table: KnowledgeTable) -> Predicate | None:
    """The meaning of a question about the secret, or None if it cannot be read.

    Never raises; a text that is empty, longer than `MAX_CHARS`, or not exactly one question is not
    read. Quotes, a leading "Question:", and sentences before the question do not matter.
    """
    text = question.strip()
    if not text or len(text) > MAX_CHARS:
        return None
    if "?" not in text.rstrip("? !."):
        found = _parse(text, table)
        if found is not None:
            return found
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
    key = None if "," in text else lexicon(table).get(f"whole:{' '.join(tokens(text))}")
    if key is not None:
        return Predicate("attribute", key)
    words = question_words(text)
    return _QuestionReader(table).question(words) if 2 <= len(words) <= MAX_WORDS else None


class _QuestionReader(PhraseReader):
    """Reads the sentence forms of a question with one table."""

    def question(self, words: list[str]) -> Predicate | None:
        if "," in words:
            return None
        head, rest = words[0], words[1:]
        if head in IT and rest and rest[0] in BE:
            return self._negatable(rest[1:], self.be)
        if head in BE and rest[0] == "there":
            return self._negatable(rest[1:], self.there)
        if head not in BE | AUX:
            return None
        if rest[0] == "not":
            after = self._question_body(head, rest[1:])
            return after.negated() if after else None
        return self._question_body(head, rest)

    def _question_body(self, head: str, rest: list[str]) -> Predicate | None:
        if not rest:
            return None
        if head in AUX | {"are", "is"}:
            human = self._people(head, rest)
            if human is not None:
                return human
        size = self._subject(rest)
        body = rest[size:]
        if size == 0 or not body:
            return None
        if head not in BE and any(word in PERSON for word in rest[:size]):
            about_person = self.find("who", body)
            if about_person is not None:
                return about_person
        if head in BE:
            return self._negatable(body, self.be)
        if head in ("has", "have") and body[0] != "been":
            return self._negatable(body[1:] if body[0] == "got" else body, self.have)
        if body[0] == "be":
            return self._negatable(body[1:], self._could_be)
        return self._negatable(body, self.do)

    def _subject(self, words: list[str]) -> int:
        """Number of words that name the secret ("it", "this person", "the secret word"), or 0."""
        if words[0] in ("the", "this", "that", "these") and len(words) > 1:
            size = 1
            while size < len(words) and size < 3 and words[size] in NOUN_SUBJECT:
                size += 1
            if size > 1:
                return size
        if words[0] == "its" and len(words) > 2 and words[1] in LOOKS:
            return 2
        return 1 if words[0] in IT else 0

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
        if who not in YOU | CHILDREN or (who == "one" and head in BE):
            return None
        if who == "person" and words[0] in ("the", "this"):
            return None
        negative = body[0] == "not"
        body = body[1:] if negative else body
        while body and body[0] in ("be", "able", "to", "usually", "ever", "normally", "typically"):
            body = body[1:]
        found = self.children(body) if who in CHILDREN else self.you(body)
        return found.negated() if found and negative else found
