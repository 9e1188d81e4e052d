"""The words of an exploration game: what its actions and answers say, and how they are read."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from agentsgym.envs.action_text import names_any, read_action
from agentsgym.envs.exploration.plan import Claim, Inform, Move, Queries

FACT_NAMES = ("red", "blue", "green", "yellow", "white", "black")
_FILLERS = frozenset(
    ("a", "and", "at", "box", "boxes", "coin", "for", "i", "in", "it", "machine", "number", "of",
     "switch", "switches", "the", "to")
)  # fmt: skip
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Question:
    """What an episode asks: a fact, and a number that some games give with it."""

    fact: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """An answer of the environment to a query."""

    fact: int
    query: int
    answer: int


@dataclass(frozen=True, slots=True)
class Judged:
    """The environment's judgment of a claim."""

    fact: int
    value: int
    right: bool


Heard = Told | Judged


class Game(ABC):
    """One game with `choices` possible values for each of `facts` hidden facts.

    Every sentence that the environment says about the facts can be read without its context.
    """

    name: ClassVar[str]
    same: ClassVar[str]
    """What stays the same in all episodes of a trial."""
    example: ClassVar[str]
    """A legal action."""

    def __init__(self, choices: int, facts: int) -> None:
        self.choices = choices
        self.facts = facts

    @property
    @abstractmethod
    def queries(self) -> Queries:
        """The true answers, see `plan.Queries`."""

    @abstractmethod
    def hidden(self) -> str:
        """What is hidden, in a sentence."""

    @abstractmethod
    def short(self) -> str:
        """The same and the actions, for a model that knows the game."""

    @abstractmethod
    def informing(self) -> str:
        """The informing action, up to what it costs."""

    @abstractmethod
    def paid(self) -> str:
        """The paid action, up to what it pays."""

    @abstractmethod
    def asks(self, question: Question) -> str:
        """What an episode asks for; "" if that is always the same."""

    @abstractmethod
    def say_inform(self, fact: int, query: int) -> str:
        """The action that makes a query."""

    @abstractmethod
    def say_claim(self, number: int) -> str:
        """The paid action number `number`."""

    @abstractmethod
    def say_told(self, told: Told) -> str:
        """An answer to a query."""

    @abstractmethod
    def say_judged(self, judged: Judged, question: Question) -> str:
        """A judgment of a claim."""

    @abstractmethod
    def read(self, text: str) -> list[tuple[str, Heard]]:
        """All answers and judgments in a text, each after its sentence."""

    def value(self, number: int, question: Question) -> int:
        """The value that paid action number `number` claims."""
        return number

    def number(self, value: int, question: Question) -> int:
        """The paid action that claims a value."""
        return value

    # -- the same for all games -----------------------------------------------------------------

    def fact_name(self, fact: int) -> str:
        """The color of a fact and a space; "" if there is only one."""
        return "" if self.facts == 1 else f"{FACT_NAMES[fact]} "

    def fact_of(self, color: str | None) -> int:
        """The number of the fact with this color."""
        return FACT_NAMES.index(color.strip()) if color else 0

    @property
    def colors(self) -> str:
        """A regular expression for `fact_name`, one group."""
        return r"((?:" + "|".join(FACT_NAMES[: self.facts]) + r") )?"

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """All paid actions."""
        return tuple(self.say_claim(number) for number in range(self.choices))

    @cached_property
    def informs(self) -> Mapping[str, Inform]:
        """All informing actions."""
        return {
            self.say_inform(fact, query): Inform(fact, query)
            for fact in range(self.facts)
            for query in range(len(self.queries))
        }

    def say(self, move: Move, question: Question) -> str:
        """A move as an action."""
        if isinstance(move, Inform):
            return self.say_inform(move.fact, move.query)
        return self.say_claim(self.number(move.value, question))

    def read_move(self, action: str, question: Question) -> Move | None:
        """The move in an agent's text (see `read_action`); None if it has none, or several."""
        found = read_action(action, self._read_one, lambda text: names_any(text, self._by_text))
        if found is None:
            return None
        if found in self.informs:
            return self.informs[found]
        return Claim(self.value(self.claims.index(found), question))

    def _read_one(self, text: str) -> str | None:
        return self._by_key.get(_key(text))

    @cached_property
    def _by_text(self) -> tuple[str, ...]:
        return (*self.claims, *self.informs)

    @cached_property
    def _by_key(self) -> Mapping[tuple[str, ...], str]:
        return {_key(text): text for text in self._by_text}


def _key(text: str) -> tuple[str, ...]:
    """The words that matter; only the first one's place does."""
    words = [word for word in _WORD.findall(text.casefold()) if word not in _FILLERS]
    return (*words[:1], *sorted(words[1:]))
