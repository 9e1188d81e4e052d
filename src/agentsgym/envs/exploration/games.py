"""The three games in words: a place to look, switches to test, a rule to try out.

A game is data: `Words` has its sentences, and `Queries` says what an informing action tells.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import resources

from agentsgym.envs.exploration.base import Question, Wording
from agentsgym.envs.exploration.best_play import Inform, News, Queries

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


class Game(Wording):
    """A game with `choices` possible values for each of `facts` hidden facts.

    A place is a box. Of switches, `choices` is a power of two, and bit k of a value says whether
    switch k works. Value v of a rule means that the machine adds v.
    """

    def __init__(self, name: str, choices: int, facts: int) -> None:
        self.name = name
        self.words = GAMES[name]
        self.choices = choices
        self.facts = facts
        claim, inform, queries = self.words.claim, self.words.inform, range(len(self.queries))
        super().__init__(
            (claim.format(claim=self._claim(number)) for number in range(choices)),
            {
                inform.format(color=self.color(fact), query=query + 1).strip(): Inform(fact, query)
                for fact in range(facts)
                for query in queries
            },
        )

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
        claim = self._claim((move.value + self.first_claim(question)) % self.choices)
        return form.format(color=color, claim=claim, given=question.given + 1)

    def color(self, fact: int) -> str:
        """The color of a fact and a space; "" if there is only one."""
        return "" if self.facts == 1 else f"{FACT_NAMES[fact]} "

    def one_of(self, pair: tuple[str, str]) -> str:
        """The sentence for this number of facts."""
        return pair[self.facts > 1]

    # -- what the agent says --------------------------------------------------------------------

    def key(self, text: str) -> tuple[str, ...]:
        """The words that matter; only the first one's place does."""
        words = [word for word in _WORD.findall(text.casefold()) if word not in _FILLERS]
        return (*words[:1], *sorted(words[1:]))

    def first_claim(self, question: Question) -> int:
        """Of a rule, what the machine gives if it adds nothing."""
        return question.given if self.name == "rule" else 0

    def _claim(self, number: int) -> str:
        """A paid action's number or, of switches, all numbers."""
        if self.name != "switches":
            return str(number + 1)
        return " ".join(str(k + 1) for k in range(self.count) if number >> k & 1) or "none"


def _list(facts: int, form: str = "{}") -> str:
    """ "red, blue and green", each in a form."""
    *most, last = (form.format(color) for color in FACT_NAMES[:facts])
    return f"{', '.join(most)} and {last}" if most else last
