"""Answerers: the table, or any callable, behind one protocol.

One rule holds for all of them: the player only ever sees one of three texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from .knowledge import KnowledgeTable
from .parser import parse

AnswerText = Literal["Yes", "No", "I don't know"]
History = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """An answer to one question.

    `parsed`: whether the question was understood; `attribute`: the column of the table that it asks
    for, None for a question about several columns or none.
    """

    text: AnswerText
    parsed: bool = True
    attribute: str | None = None

    @property
    def value(self) -> bool | None:
        return {"Yes": True, "No": False}.get(self.text)


UNPARSED = Answer("I don't know", parsed=False)


class Answerer(Protocol):
    """Answers a question about a secret, given the (question, answer) pairs so far."""

    def answer(self, secret: str, question: str, history: History) -> Answer: ...


@dataclass(frozen=True)
class TableAnswerer:
    """Answers from a knowledge table; exact, offline, deterministic."""

    table: KnowledgeTable

    def answer(self, secret: str, question: str, history: History = ()) -> Answer:
        predicate = parse(question, self.table)
        if predicate is None:
            return UNPARSED
        known = self.table.answer(self.table.canonical(secret) or secret, predicate)
        text: AnswerText = "I don't know" if known is None else "Yes" if known else "No"
        return Answer(text, attribute=predicate.attribute)


@dataclass(frozen=True)
class CallableAnswerer:
    """Answers with any function of (secret, question, history), for instance an LLM's completion.

    The first word of the function's text decides which of the three answers it means; any other
    text, and any value that is not a string, is "I don't know". Its exceptions are not caught.
    """

    function: Callable[[str, str, History], str]

    def answer(self, secret: str, question: str, history: History = ()) -> Answer:
        return read_answer(self.function(secret, question, history))


_YES = re.compile(r"\W*yes\b", re.IGNORECASE)
_NO = re.compile(r"\W*no\b", re.IGNORECASE)
_UNKNOWN = re.compile(r"\W*i (?:do not|don['’]?t) know\b", re.IGNORECASE)


def read_answer(text: object) -> Answer:
    """One of the three answers from an answerer's raw text, which is then discarded."""
    head = text[:40] if isinstance(text, str) else ""
    if _YES.match(head):
        return Answer("Yes")
    if _NO.match(head):
        return Answer("No")
    return Answer("I don't know", parsed=bool(_UNKNOWN.match(head)))
