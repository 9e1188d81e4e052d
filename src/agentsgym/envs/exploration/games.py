"""The three games in words: a place to look, switches to test, a rule to try out.

A game is data: `Words` has its sentences, and `Queries` says what an informing action tells.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from agentsgym.envs.action_text import names_any, read_action
from agentsgym.envs.exploration.best_play import Claim, Inform, Judgment, Move, Queries, Reply

FACT_NAMES = ("red", "blue", "green", "yellow", "white", "black")
_FILLERS = frozenset(
    ("a", "and", "at", "box", "boxes", "coin", "for", "i", "in", "it", "machine", "number", "of",
     "switch", "switches", "the", "to")
)  # fmt: skip
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences of a game. Of a pair, the second is for games with several facts.

    `{n}` is the number of things, `{each}` and `{list}` the facts, `{color}` a fact's color and a
    space (nothing if there is one fact), `{query}`, `{answer}`, `{claim}` and `{given}` what an
    action or answer names.
    """

    same: str
    """What stays the same in all episodes of a trial."""
    example: str
    """A legal action."""
    thing: str
    hidden: tuple[str, str]
    short: str
    """The game for a model that knows it."""
    informing: tuple[str, str]
    """The informing action, up to what it costs."""
    paid: str
    """The paid action, up to what it pays."""
    asks: tuple[str, str]
    inform: str
    claim: str
    reply: str
    right: str
    wrong: str
    answers: tuple[str, ...] = ()
    """Words for the answers; by default their numbers."""


PLACE = Words(
    same="same place",
    example="open 1",
    thing="coin",
    hidden=("A coin is in one of the boxes 1 to {n}.", "{each} are in the boxes 1 to {n}."),
    short="Boxes 1 to {n}. look or open.",
    informing=(
        '"look" says in which one',
        '"look" with a color says in which one that coin is',
    ),
    paid='"open" with a number',
    asks=("", "Find the {color}coin."),
    inform="look {color}",
    claim="open {claim}",
    reply="You see the {color}coin in box {answer}.",
    right="Box {claim} has the {color}coin.",
    wrong="Box {claim} has no {color}coin.",
)
SWITCHES = Words(
    same="same switches",
    example="press 1",
    thing="switch",
    hidden=(
        "Each of the switches 1 to {n} works or is dead.",
        "Each of the {list} switches 1 to {n} works or is dead.",
    ),
    short="Switches 1 to {n}. test or press.",
    informing=(
        '"test" with a number says whether that switch works',
        '"test" with a color and a number says whether that switch works',
    ),
    paid='"press" with numbers, or "press none",',
    asks=("Press exactly the {color}switches that work.",) * 2,
    inform="test {color}{query}",
    claim="press {claim}",
    reply="The {color}switch {query} {answer}.",
    right="Pressing {color}{claim} is right.",
    wrong="Pressing {color}{claim} is wrong.",
    answers=("is dead", "works"),
)
RULE = Words(
    same="same rule",
    example="say 1",
    thing="machine",
    hidden=(
        "A machine adds a secret number and counts on from 1 after {n}.",
        "{each} add a secret number each and count on from 1 after {n}.",
    ),
    short="Numbers 1 to {n}. try or say.",
    informing=(
        '"try" with a number shows what comes out',
        '"try" with a color and a number shows what comes out',
    ),
    paid='"say" with the number that comes out',
    asks=("What does the {color}machine give for {given}?",) * 2,
    inform="try {color}{query}",
    claim="say {claim}",
    reply="You get {answer} for {color}{query}.",
    right="The {color}machine gives {claim} for {given}.",
    wrong="The {color}machine does not give {claim} for {given}.",
)
GAMES: Mapping[str, Words] = {"place": PLACE, "switches": SWITCHES, "rule": RULE}
"""The games by their names."""


@dataclass(frozen=True, slots=True)
class Question:
    """What an episode asks: a fact, and a number that the rule's game gives with it."""

    fact: int = 0
    given: int = 0


class Game:
    """A game with `choices` possible values for each of `facts` hidden facts.

    A place is a box. Of switches, `choices` is a power of two, and bit k of a value says whether
    switch k works. Value v of a rule means that the machine adds v.
    """

    def __init__(self, name: str, choices: int, facts: int) -> None:
        self.words = GAMES[name]
        self.choices = choices
        self.facts = facts

    @cached_property
    def queries(self) -> Queries:
        """The true answers: a look names the box, a test tells a bit, a try of number q + 1 shows
        what the machine gives for it."""
        values = range(self.choices)
        if self.words is PLACE:
            return (tuple(values),)
        if self.words is SWITCHES:
            return tuple(tuple(v >> switch & 1 for v in values) for switch in range(self.count))
        return tuple(tuple((tried + v) % self.choices for v in values) for tried in values)

    @property
    def count(self) -> int:
        """Number of boxes, switches or numbers."""
        return self.choices.bit_length() - 1 if self.words is SWITCHES else self.choices

    # -- what the environment says --------------------------------------------------------------

    def hidden(self) -> str:
        """What is hidden, in a sentence."""
        each = _list(self.facts, f"a {{}} {self.words.thing}").capitalize()
        return self._one_of(self.words.hidden).format(
            n=self.count, each=each, list=_list(self.facts)
        )

    def short(self) -> str:
        """The same and the actions, for a model that knows the game."""
        return self.words.short.format(n=self.count)

    def informing(self) -> str:
        """The informing action, up to what it costs."""
        return self._one_of(self.words.informing)

    def asks(self, question: Question) -> str:
        """What an episode asks for; "" if that is always the same."""
        color, given = self.color(question.fact), question.given + 1
        return self._one_of(self.words.asks).format(color=color, given=given)

    def say_reply(self, reply: Reply) -> str:
        """An answer to a query."""
        named = self.words.answers
        answer = named[reply.answer] if named else reply.answer + 1
        color = self.color(reply.fact)
        return self.words.reply.format(color=color, query=reply.query + 1, answer=answer)

    def say_judgment(self, judgment: Judgment, question: Question) -> str:
        """A judgment of a claim."""
        form = self.words.right if judgment.right else self.words.wrong
        return form.format(
            color=self.color(judgment.fact),
            claim=self._claim(self._number(judgment.value, question)),
            given=question.given + 1,
        )

    def color(self, fact: int) -> str:
        """The color of a fact and a space; "" if there is only one."""
        return "" if self.facts == 1 else f"{FACT_NAMES[fact]} "

    def _one_of(self, pair: tuple[str, str]) -> str:
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
        return {
            self.words.inform.format(color=self.color(fact), query=query + 1).strip(): Inform(
                fact, query
            )
            for fact in range(self.facts)
            for query in range(len(self.queries))
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
        return Claim((number - question.given) % self.choices if self.words is RULE else number)

    def _number(self, value: int, question: Question) -> int:
        """The paid action that claims a value."""
        return (question.given + value) % self.choices if self.words is RULE else value

    def _claim(self, number: int) -> str:
        """A paid action's number or, of switches, all numbers."""
        if self.words is not SWITCHES:
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
