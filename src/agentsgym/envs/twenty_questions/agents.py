"""The reference player and the teacher as agents; they only read the conversation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agentsgym.envs.settings import EnvSettings
from agentsgym.envs.twenty_questions.best_play import BestPlay
from agentsgym.envs.twenty_questions.knowledge import Attribute, KnowledgeTable
from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView

_ANSWERS = {"Yes": True, "No": False}


class QuestionTable(Protocol):
    """The environment as its reference player needs it."""

    @property
    def config(self) -> EnvSettings: ...

    @property
    def best_play(self) -> BestPlay: ...

    def attribute_for(self, phrase_or_question: str) -> Attribute | None: ...


class OptimalAgent(PrivilegedAgent):
    """Plays `BestPlay` (greedy information gain) on an environment's table and step limit."""

    def __init__(self, env: QuestionTable) -> None:
        self._env = env

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session."""
        return _OptimalPlayer(self, session)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next question or guess in a conversation of one episode; needs no state."""
        return self.choose(messages, sum(m["role"] == "assistant" for m in messages)), None

    def choose(self, messages: Sequence[Message], said: int) -> str:
        """The next question or guess after a conversation, with `said` actions of the episode."""
        first = next(i for i, message in enumerate(messages) if message["role"] == "user")
        known = self._hints(messages[first]["content"])
        turns = messages[first + 1 :]
        for question, answer in zip(turns[::2], turns[1::2], strict=True):
            attribute = self._env.attribute_for(question["content"])
            if attribute is not None:
                known.append((attribute.key, _read(answer["content"])))
        left = self._env.config.max_steps_per_episode - said
        return self._env.best_play.next_action(known, frozenset(), left)

    def _hints(self, prompt: str) -> list[tuple[str, bool | None]]:
        known: list[tuple[str, bool | None]] = []
        for line in prompt.splitlines():
            word, _, rest = line.removeprefix("Hint: ").partition(", ")
            phrase = rest.removesuffix(".")
            if word == "No":
                phrase = phrase.removeprefix("not ")
            attribute = self._env.attribute_for(phrase) if word in _ANSWERS else None
            if attribute is not None:
                known.append((attribute.key, _ANSWERS[word]))
        return known


class _OptimalPlayer:
    def __init__(self, agent: OptimalAgent, session: SessionView) -> None:
        self._agent = agent
        self._session = session

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next question or guess; needs no state."""
        return self._agent.choose(messages, len(self._session.actions)), None


def _read(answer: str) -> bool | None:
    for word, value in _ANSWERS.items():
        if answer.startswith(word):
            return value
    return None


class _Environment(Protocol):
    table: KnowledgeTable

    @property
    def config(self) -> EnvSettings: ...


@dataclass(slots=True)
class _Game:
    """The teacher's state in a game: the step of its guess, its skill, its last question, and, as a
    boolean per secret of the table, which secrets agree with the answers so far."""

    guess_at: int
    skill: float
    possible: npt.NDArray[np.bool_]
    step: int = 0
    asked: int | None = None


class RandomTeacher:
    """A different careless player in each game.

    A player draws its questions from the table's attributes with probabilities proportional to
    exp(skill x information gain in bits), so skill 0 asks blindly and may repeat questions. The
    skill is uniform over the range `skill`. The player guesses at a random step, uniform over the
    episode's steps (never, with `guesses=False`), and its guess is uniform over the secrets that
    agree with all answers. A model that imitates it learns what the answers mean and that questions
    differ; it still has to find out how to ask and when to stop.

    It reads the answer style "echo" with canonical questions. Games must be played one after the
    other: one generator makes all draws, so that equal seeds give equal series of games.
    """

    def __init__(
        self,
        env: _Environment,
        seed: int = 0,
        *,
        skill: tuple[float, float] = (0.0, 6.0),
        guesses: bool = True,
    ) -> None:
        self._table = env.table
        self._steps: int = env.config.max_steps_per_episode
        self._skill = skill
        self._guesses = guesses
        self._rng = random.Random(f"random-teacher-{seed}")
        self._columns = range(len(env.table.attributes))
        self._echoes = {
            answer: (column, value)
            for column, attribute in enumerate(self._table.attributes)
            for answer, value in (
                (f"Yes, {attribute.phrase}.", 1),
                (f"No, not {attribute.phrase}.", 0),
            )
        }

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """A question, or the guess if this is the drawn step; the state is the teacher's own."""
        game: _Game = self._begin() if agent_state is None else agent_state
        for line in messages[-1]["content"].splitlines():
            self._learn(game, line)
        game.step += 1
        if game.step >= game.guess_at:
            game.asked = None
            word = self._rng.choice(np.flatnonzero(game.possible).tolist())
            return f"[{self._table.secrets[word]}]", game
        weights = np.exp(game.skill * self._gains(game.possible)).tolist()
        game.asked = self._rng.choices(self._columns, weights)[0]
        return self._table.attributes[game.asked].question, game

    def _begin(self) -> _Game:
        guess_at = self._rng.randint(1, self._steps) if self._guesses else self._steps + 1
        possible = np.ones(len(self._table.secrets), dtype=np.bool_)
        return _Game(guess_at, self._rng.uniform(*self._skill), possible)

    def _gains(self, possible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Expected information of each attribute's answer, in bits, shape (attributes,)."""
        rows = self._table.values[possible]
        shares = np.stack([(rows == value).mean(axis=0) for value in (1, 0, -1)])
        gains: npt.NDArray[np.float64] = -(shares * np.log2(np.maximum(shares, 1e-9))).sum(axis=0)
        return gains

    def _learn(self, game: _Game, line: str) -> None:
        if line in self._echoes:
            column, value = self._echoes[line]
        elif game.asked is not None and line.startswith("I don't know"):
            column, value = game.asked, -1
        else:
            return
        possible = game.possible & (self._table.values[:, column] == value)
        if possible.any():
            game.possible = possible
