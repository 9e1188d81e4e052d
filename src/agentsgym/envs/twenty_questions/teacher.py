"""A scripted player that knows the table but not how to play: the warm start's teacher."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentsgym.envs.twenty_questions.env import TwentyQuestionsEnv
from agentsgym.types import Message

_ANSWERS = {"Yes": 1, "No": 0}


@dataclass(slots=True)
class _Game:
    """What the teacher keeps of a game: when it guesses, what it asked last, and, as a boolean
    per secret of the table, what agrees with the answers so far."""

    guess_at: int
    possible: npt.NDArray[np.bool_]
    step: int = 0
    asked: int | None = None


class RandomTeacher:
    """Asks attributes of the table at random, with repetition, and guesses at a random step.

    The step of the guess is uniform over the episode's; the guess is uniform over the secrets that
    agree with all answers, so that a model which learns from it learns what answers mean, and
    nothing about which questions to ask or when to stop. With `guesses=False` it only asks.

    It reads the answer style "echo" with canonical questions. Games must be played one after the
    other: the draws come from one generator, so that equal seeds give equal series of games.
    """

    def __init__(self, env: TwentyQuestionsEnv, seed: int = 0, *, guesses: bool = True) -> None:
        self._table = env.table
        self._steps: int = env.config["max_steps_per_episode"]
        self._guesses = guesses
        self._rng = random.Random(f"random-teacher-{seed}")
        self._echoes = {
            answer: (column, value)
            for column, attribute in enumerate(self._table.attributes)
            for answer, value in (
                (f"Yes, {attribute.phrase}.", 1),
                (f"No, not {attribute.phrase}.", 0),
            )
        }

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """A random question, or at the drawn step the guess; the state is the teacher's own."""
        game: _Game = self._begin() if agent_state is None else agent_state
        for line in messages[-1]["content"].splitlines():
            self._learn(game, line)
        game.step += 1
        if game.step >= game.guess_at:
            game.asked = None
            word = self._rng.choice(np.flatnonzero(game.possible).tolist())
            return f"[{self._table.secrets[word]}]", game
        game.asked = self._rng.randrange(len(self._table.attributes))
        return self._table.attributes[game.asked].question, game

    def _begin(self) -> _Game:
        guess_at = self._rng.randint(1, self._steps) if self._guesses else self._steps + 1
        return _Game(guess_at, np.ones(len(self._table.secrets), dtype=np.bool_))

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
