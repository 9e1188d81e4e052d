"""Explore: three games with words of their own, and settings for everything else."""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from agentsgym.envs.dataset import read_seed
from agentsgym.envs.exploration.base import (
    Case,
    ExplorationGame,
    ExplorationSettings,
    ExploreState,
    Noise,
    Question,
    Wording,
)
from agentsgym.envs.exploration.best_play import BestPlayer, Inform, News, Plan, Queries
from agentsgym.envs.settings import Carry
from agentsgym.types.settings import MOST

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


# -- the environment -------------------------------------------------------------------------------


_SWITCHES = "switches"


class ExploreSettings(ExplorationSettings):
    """Without the number of episodes or of free shots, the second of two episodes is scored, with
    switches the one after as many free shots as there are switches. Fewer episodes have fewer free
    shots, more free shots have more episodes."""

    game: Literal["place", "switches", "rule"] = Field(
        "place", description="what is hidden, and how to find it"
    )
    max_steps_per_episode: int = Field(1, description="actions per episode; 1: looking costs it")
    episodes_per_trial: int = Field(
        2, description="episodes on the same task (switches: a free shot for each switch and 1)"
    )
    free_shots: int = Field(
        1, description="first episodes that are not scored (by default all but the last)"
    )
    carry: Carry = "full"
    choices: int = Field(
        8, ge=2, le=64, description="possible values of a fact; for switches a power of 2"
    )
    facts: int = Field(
        1, ge=1, le=len(FACT_NAMES), description="hidden facts; each episode asks for one of them"
    )
    noise: Noise = Field(0.0, description="probability that the answer to a look is wrong")
    look_cost: float = Field(0.0, ge=0, description="cost of each informing action")
    right_reward: float = Field(1.0, description="what the paid action earns if it is right")
    wrong_reward: float = Field(0.0, description="what it earns if it is wrong")

    @model_validator(mode="before")
    @classmethod
    def _complete_trial(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        episodes, free = values.get("episodes_per_trial"), values.get("free_shots")
        choices = values.get("choices", cls.model_fields["choices"].default)
        counts = [values[key] for key in ("episodes_per_trial", "free_shots") if key in values]
        if not all(map(_is_count, (*counts, choices))):
            return values  # they are refused
        shots = max(1, choices.bit_length() - 1) if values.get("game") == _SWITCHES else 1
        if free is None:
            free = shots if episodes is None else max(0, min(shots, episodes - 1))
        if episodes is None:
            episodes = max(shots, free) + 1
        return {**values, "episodes_per_trial": episodes, "free_shots": free}

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if self.game == _SWITCHES and self.choices & (self.choices - 1):
            raise ValueError(f"choices must be a power of 2 for switches, got {self.choices}")
        if self.wrong_reward >= self.right_reward:
            raise ValueError(
                f"wrong_reward must be less than right_reward ({self.right_reward}), got "
                f"{self.wrong_reward}"
            )
        return self


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


class ExploreEnv(ExplorationGame):
    """Find what is hidden, then use it: one kind of action informs and earns nothing, the other is
    paid if it is right and ends the episode.

    `task_data` is `{"seed": int}`, which draws what is hidden. The key `game` chooses the words:
    `"place"` (look for a coin, open a box), `"switches"` (test switches, press those that work),
    `"rule"` (try a machine, say what it gives). By default an episode has one action, so that
    looking costs the episode; the first of two episodes is a free shot. `info["informing"]` marks
    informing actions.
    """

    Settings = ExploreSettings
    config: ExploreSettings

    def _set_up(self) -> None:
        config = self.config
        self.game = Game(config.game, config.choices, config.facts)
        self.steps = config.max_steps_per_episode
        # A malformed action loses as much as a wrong one and need not end the episode.
        least = 0.0 - self.steps * max(0.0, config.look_cost, -config.wrong_reward)
        self.reward_range = (least, max(0.0, config.right_reward))
        self.plan = Plan(
            queries=self.game.queries,
            weights=self.shares,
            steps=self.steps,
            facts=config.facts,
            noise=config.noise,
            look_cost=config.look_cost,
            right=config.right_reward,
            wrong=config.wrong_reward,
        )

    def case(self, task_data: Mapping[str, Any]) -> Case:
        return Case(self.plan, self.game)

    def question(self, task_data: Mapping[str, Any], episode: int) -> Question:
        rng = random.Random(f"explore-{read_seed(task_data)}-{episode}")
        return Question(rng.randrange(self.config.facts), rng.randrange(self.config.choices))

    def player(self, *, informs: bool = True) -> BestPlayer:
        """The best player of the configured trial, or the best one that never informs itself.
        Raises ValueError if the trial is too large for exact play."""
        return self.player_of({}, informs=informs)

    def example_action(self, state: ExploreState) -> str:
        return self.game.words.example

    def first_prompt(self, state: ExploreState) -> str:
        game, place = self.game, state["trial"].round_line(self.game.words.same)
        asks = game.asks(state["question"])
        if not self.config.explain_actions:
            return " ".join(filter(None, (place, game.words.short.format(n=game.count), asks)))
        actions = "1 action" if self.steps == 1 else f"{self.steps} actions"
        rules = (place, game.hidden(), self._pay(), f"You have {actions}.", asks)
        return " ".join(filter(None, rules))

    def _pay(self) -> str:
        """What the actions are worth, in words."""
        cost = f"costs {self.config.look_cost:g}" if self.config.look_cost else "earns nothing"
        ends = " and ends the round" if self.steps > 1 else ""
        noise, words = self.config.noise, self.game.words
        lies = f" That is wrong in {noise:.0%} of the cases." if noise else ""
        return (
            f"{self.game.one_of(words.informing)} and {cost}.{lies} {words.paid} earns "
            f"{self.config.right_reward:g} if right, else {self.config.wrong_reward:g}{ends}."
        )
