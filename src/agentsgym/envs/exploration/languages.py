"""The three games: a place to look, switches to test, a rule to try out."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from agentsgym.envs.exploration.game import FACT_NAMES, Game, Heard, Judged, Question, Told
from agentsgym.envs.exploration.plan import Queries


class Place(Game):
    """A coin is in one of several boxes; a look says in which."""

    name: ClassVar[str] = "place"
    same: ClassVar[str] = "same place"
    example: ClassVar[str] = "open 1"

    @property
    def queries(self) -> Queries:
        """A look names the box."""
        return (tuple(range(self.choices)),)

    def hidden(self) -> str:
        """What is hidden."""
        if self.facts == 1:
            return f"A coin is in one of the boxes 1 to {self.choices}."
        return f"{_each('coin', self.facts)} are in the boxes 1 to {self.choices}."

    def short(self) -> str:
        """Boxes and actions."""
        return f"Boxes 1 to {self.choices}. look or open."

    def informing(self) -> str:
        """The look."""
        if self.facts == 1:
            return '"look" says in which one'
        return '"look" with a color says in which one that coin is'

    def paid(self) -> str:
        """The open."""
        return '"open" with a number'

    def asks(self, question: Question) -> str:
        """The coin to find."""
        return "" if self.facts == 1 else f"Find the {self.fact_name(question.fact)}coin."

    def say_inform(self, fact: int, query: int) -> str:
        """A look."""
        return f"look {self.fact_name(fact)}".strip()

    def say_claim(self, number: int) -> str:
        """An open."""
        return f"open {number + 1}"

    def say_told(self, told: Told) -> str:
        """Where the coin is seen."""
        return f"You see the {self.fact_name(told.fact)}coin in box {told.answer + 1}."

    def say_judged(self, judged: Judged, question: Question) -> str:
        """Whether the box has the coin."""
        has = "has the" if judged.right else "has no"
        return f"Box {judged.value + 1} {has} {self.fact_name(judged.fact)}coin."

    def read(self, text: str) -> list[tuple[str, Heard]]:
        """All sentences of both kinds."""
        sentence = re.compile(
            rf"You see the {self.colors}coin in box (\d+)\."
            rf"|Box (\d+) has (the|no) {self.colors}coin\."
        )
        found: list[tuple[str, Heard]] = []
        for match in sentence.finditer(text):
            seen, there, box, has, judged = match.groups()
            if there:
                found.append((match[0], Told(self.fact_of(seen), 0, int(there) - 1)))
            else:
                found.append((match[0], Judged(self.fact_of(judged), int(box) - 1, has == "the")))
        return found


class Switches(Game):
    """Each of a few switches works or is dead; a test tells about one. `choices` is a power of two;
    bit k of a value says whether switch k works."""

    name: ClassVar[str] = "switches"
    same: ClassVar[str] = "same switches"
    example: ClassVar[str] = "press 1"

    @property
    def count(self) -> int:
        """Number of switches."""
        return self.choices.bit_length() - 1

    @property
    def queries(self) -> Queries:
        """A test tells a bit."""
        return tuple(
            tuple(value >> switch & 1 for value in range(self.choices))
            for switch in range(self.count)
        )

    def hidden(self) -> str:
        """What is hidden."""
        which = "" if self.facts == 1 else f"{_list(self.facts)} "
        return f"Each of the {which}switches 1 to {self.count} works or is dead."

    def short(self) -> str:
        """Switches and actions."""
        return f"Switches 1 to {self.count}. test or press."

    def informing(self) -> str:
        """The test."""
        color = "" if self.facts == 1 else "a color and "
        return f'"test" with {color}a number says whether that switch works'

    def paid(self) -> str:
        """The press."""
        return '"press" with numbers, or "press none",'

    def asks(self, question: Question) -> str:
        """The switches to press."""
        return f"Press exactly the {self.fact_name(question.fact)}switches that work."

    def say_inform(self, fact: int, query: int) -> str:
        """A test."""
        return f"test {self.fact_name(fact)}{query + 1}"

    def say_claim(self, number: int) -> str:
        """A press of all switches in a set."""
        return f"press {self._set(number)}"

    def say_told(self, told: Told) -> str:
        """Whether the switch works."""
        state = "works" if told.answer else "is dead"
        return f"The {self.fact_name(told.fact)}switch {told.query + 1} {state}."

    def say_judged(self, judged: Judged, question: Question) -> str:
        """Whether the set is right."""
        right = "right" if judged.right else "wrong"
        return f"Pressing {self.fact_name(judged.fact)}{self._set(judged.value)} is {right}."

    def read(self, text: str) -> list[tuple[str, Heard]]:
        """All sentences of both kinds."""
        sentence = re.compile(
            rf"The {self.colors}switch (\d+) (works|is dead)\."
            rf"|Pressing {self.colors}(none|[\d ]+) is (right|wrong)\."
        )
        found: list[tuple[str, Heard]] = []
        for match in sentence.finditer(text):
            seen, switch, state, judged, pressed, right = match.groups()
            if switch:
                found.append(
                    (match[0], Told(self.fact_of(seen), int(switch) - 1, int(state == "works")))
                )
            else:
                value = sum(1 << int(k) - 1 for k in pressed.split() if k != "none")
                found.append((match[0], Judged(self.fact_of(judged), value, right == "right")))
        return found

    def _set(self, value: int) -> str:
        pressed = [str(k + 1) for k in range(self.count) if value >> k & 1]
        return " ".join(pressed) or "none"


class Rule(Game):
    """A machine adds a secret number to any number, counting on from 1 after the last one; a try
    shows what it gives for a number. Value v means that it adds v."""

    name: ClassVar[str] = "rule"
    same: ClassVar[str] = "same rule"
    example: ClassVar[str] = "say 1"

    @property
    def queries(self) -> Queries:
        """A try of number q + 1."""
        count = self.choices
        return tuple(
            tuple((tried + value) % count for value in range(count)) for tried in range(count)
        )

    def hidden(self) -> str:
        """What is hidden."""
        if self.facts == 1:
            return f"A machine adds a secret number and counts on from 1 after {self.choices}."
        machines = _each("machine", self.facts)
        return f"{machines} add a secret number each and count on from 1 after {self.choices}."

    def short(self) -> str:
        """Numbers and actions."""
        return f"Numbers 1 to {self.choices}. try or say."

    def informing(self) -> str:
        """The try."""
        color = "" if self.facts == 1 else "a color and "
        return f'"try" with {color}a number shows what comes out'

    def paid(self) -> str:
        """The answer."""
        return '"say" with the number that comes out'

    def asks(self, question: Question) -> str:
        """The number to apply the rule to."""
        return (
            f"What does the {self.fact_name(question.fact)}machine give for {question.given + 1}?"
        )

    def say_inform(self, fact: int, query: int) -> str:
        """A try."""
        return f"try {self.fact_name(fact)}{query + 1}"

    def say_claim(self, number: int) -> str:
        """An answer."""
        return f"say {number + 1}"

    def value(self, number: int, question: Question) -> int:
        """The number that the machine would have to add."""
        return (number - question.given) % self.choices

    def number(self, value: int, question: Question) -> int:
        """What comes out."""
        return (question.given + value) % self.choices

    def say_told(self, told: Told) -> str:
        """What came out."""
        return f"You get {told.answer + 1} for {self.fact_name(told.fact)}{told.query + 1}."

    def say_judged(self, judged: Judged, question: Question) -> str:
        """Whether the answer is right."""
        gives = "gives" if judged.right else "does not give"
        number = self.number(judged.value, question) + 1
        color = self.fact_name(judged.fact)
        return f"The {color}machine {gives} {number} for {question.given + 1}."

    def read(self, text: str) -> list[tuple[str, Heard]]:
        """All sentences of both kinds."""
        sentence = re.compile(
            rf"You get (\d+) for {self.colors}(\d+)\."
            rf"|The {self.colors}machine (gives|does not give) (\d+) for (\d+)\."
        )
        found: list[tuple[str, Heard]] = []
        for match in sentence.finditer(text):
            out, tried_of, tried, judged_of, gives, number, given = match.groups()
            if tried:
                found.append((match[0], Told(self.fact_of(tried_of), int(tried) - 1, int(out) - 1)))
            else:
                value = (int(number) - int(given)) % self.choices
                found.append((match[0], Judged(self.fact_of(judged_of), value, gives == "gives")))
        return found


def _each(noun: str, facts: int) -> str:
    """ "A red coin and a blue coin"."""
    return _list(facts, "a {} " + noun).capitalize()


def _list(facts: int, form: str = "{}") -> str:
    """ "red, blue and green", each in a form."""
    *most, last = (form.format(color) for color in FACT_NAMES[:facts])
    return f"{', '.join(most)} and {last}"


def _by_name(games: Sequence[type[Game]]) -> Mapping[str, type[Game]]:
    return {game.name: game for game in games}


GAMES = _by_name((Place, Switches, Rule))
"""The games by their names."""
