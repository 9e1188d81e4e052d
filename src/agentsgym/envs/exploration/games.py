"""The three games in words: a place to look, switches to test, a rule to try out.

A game is data: `Words` has its sentences, and `Queries` says what an informing action tells.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources

from agentsgym.envs.action_text import names_any, read_action
from agentsgym.envs.exploration.base import Question
from agentsgym.envs.exploration.best_play import Claim, Inform, Move, News, Queries

FACT_NAMES = ("red", "blue", "green", "yellow", "white", "black")
_FILLERS = frozenset(
    ("a", "and", "at", "box", "boxes", "coin", "for", "i", "in", "it", "machine", "number", "of",
     "switch", "switches", "the", "to")
)  # fmt: skip
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences of a game. Of a pair, the second is for games with several facts.

    `same` is what stays the same in all episodes of a trial, `short` the game for a model that
    knows it; `informing` and `paid` are the two actions up to what they cost and pay; without
    `answers`, the answers are numbers. `{n}` is the number of things, `{each}` and `{list}` the
    facts, `{color}` a fact's color and a space (nothing if there is one fact), `{query}`,
    `{answer}`, `{claim}` and `{given}` what an action or answer names.
    """

    same: str
    example: str
    thing: str
    hidden: tuple[str, str]
    short: str
    informing: tuple[str, str]
    paid: str
    asks: tuple[str, str]
    inform: str
    claim: str
    reply: str
    right: str
    wrong: str
    answers: tuple[str, ...] = ()


_FILE = resources.files("agentsgym.envs.exploration").joinpath("games.json")
GAMES = {name: Words(**words) for name, words in json.loads(_FILE.read_text("utf-8")).items()}
"""The games by their names."""


class Game:
    """A game with `choices` possible values for each of `facts` hidden facts.

    A place is a box. Of switches, `choices` is a power of two, and bit k of a value says whether
    switch k works. Value v of a rule means that the machine adds v.
    """

    def __init__(self, name: str, choices: int, facts: int) -> None:
        self.name = name
        self.words = GAMES[name]
        self.choices = choices
        self.facts = facts

    @cached_property
    def queries(self) -> Queries:
        """The true answers: a look names the box, a test tells a bit, a try of number q + 1 shows
        what the machine gives for it."""
        values = range(self.choices)
        if self.name == "place":
            return (tuple(values),)
        if self.name == "switches":
            return tuple(tuple(v >> switch & 1 for v in values) for switch in range(self.count))
        return tuple(tuple((tried + v) % self.choices for v in values) for tried in values)

    @property
    def count(self) -> int:
        """Number of boxes, switches or numbers."""
        return self.choices.bit_length() - 1 if self.name == "switches" else self.choices

    # -- what the environment says --------------------------------------------------------------

    def hidden(self) -> str:
        """What is hidden, in a sentence."""
        each = _list(self.facts, f"a {{}} {self.words.thing}").capitalize()
        return self.one_of(self.words.hidden).format(
            n=self.count, each=each, list=_list(self.facts)
        )

    def asks(self, question: Question) -> str:
        """What an episode asks for; "" if that is always the same."""
        color, number = self.color(question.fact), question.given + 1
        return self.one_of(self.words.asks).format(color=color, given=number)

    def say_answer(self, answer: News, question: Question) -> str:
        """The answer to a query, or whether a claim is right."""
        move, color = answer.move, self.color(answer.fact)
        if isinstance(move, Inform):
            names = self.words.answers
            name = names[answer.value] if names else answer.value + 1
            return self.words.reply.format(color=color, query=move.query + 1, answer=name)
        form = self.words.right if answer.value else self.words.wrong
        claim = self._claim(self._number(move.value, question))
        return form.format(color=color, claim=claim, given=question.given + 1)

    def color(self, fact: int) -> str:
        """The color of a fact and a space; "" if there is only one."""
        return "" if self.facts == 1 else f"{FACT_NAMES[fact]} "

    def one_of(self, pair: tuple[str, str]) -> str:
        """The sentence for this number of facts."""
        return pair[self.facts > 1]

    # -- what the agent says --------------------------------------------------------------------

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """All paid actions."""
        form = self.words.claim
        return tuple(form.format(claim=self._claim(number)) for number in range(self.choices))

    @cached_property
    def informs(self) -> Mapping[str, Inform]:
        """All informing actions."""
        form, queries = self.words.inform, range(len(self.queries))
        informs = [Inform(fact, query) for fact in range(self.facts) for query in queries]
        return {
            form.format(color=self.color(one.fact), query=one.query + 1).strip(): one
            for one in informs
        }

    def say(self, move: Move, question: Question) -> str:
        """A move as an action."""
        if isinstance(move, Claim):
            return self.claims[self._number(move.value, question)]
        return next(text for text, inform in self.informs.items() if inform == move)

    def read_move(self, action: str, question: Question) -> Move | None:
        """The move in an agent's text (see `read_action`); None if it has none, or several."""
        text = read_action(
            action,
            lambda part: self._by_key.get(_key(part)),
            lambda part: names_any(part, self._by_key.values()),
        )
        if text is None or text in self.informs:
            return None if text is None else self.informs[text]
        number = self.claims.index(text)
        return Claim((number - question.given) % self.choices if self.name == "rule" else number)

    def _number(self, value: int, question: Question) -> int:
        """The paid action that claims a value."""
        return (question.given + value) % self.choices if self.name == "rule" else value

    def _claim(self, number: int) -> str:
        """A paid action's number or, of switches, all numbers."""
        if self.name != "switches":
            return str(number + 1)
        return " ".join(str(k + 1) for k in range(self.count) if number >> k & 1) or "none"

    @cached_property
    def _by_key(self) -> Mapping[tuple[str, ...], str]:
        return {_key(text): text for text in (*self.claims, *self.informs)}


def _list(facts: int, form: str = "{}") -> str:
    """ "red, blue and green", each in a form."""
    *most, last = (form.format(color) for color in FACT_NAMES[:facts])
    return f"{', '.join(most)} and {last}" if most else last


def _key(text: str) -> tuple[str, ...]:
    """The words that matter; only the first one's place does."""
    words = [word for word in _WORD.findall(text.casefold()) if word not in _FILLERS]
    return (*words[:1], *sorted(words[1:]))
