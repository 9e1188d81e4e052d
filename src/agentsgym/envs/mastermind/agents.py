"""Mastermind's players as agents; they read the conversation.

They use the running episode, with `carry="full"` the earlier episodes of the trial, and with
`carry="summary"` their own notes: the guesses with their feedback, one per line, in the form of the
opening hints. Their session says which episode is running, how many guesses are left, and whether
notes are requested.
"""

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from agentsgym.envs.mastermind.codes import Code, CodeSpace, Feedback, Told
from agentsgym.envs.mastermind.trials import Player
from agentsgym.envs.mastermind.wording import (
    read_code,
    read_feedback,
    read_hints,
    say_code,
    say_feedback,
)
from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView


class Board(Protocol):
    """The members of the environment that its players need."""

    color_names: tuple[str, ...]
    space: CodeSpace

    @property
    def config(self) -> Any: ...

    def player(self, kind: str = "best") -> Player: ...

    def possible(self, told: Told) -> int: ...


class _MastermindAgent(PrivilegedAgent):
    def __init__(self, env: Board) -> None:
        self._env = env

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session."""
        return _MastermindPlayer(self, self._env, session)

    @abstractmethod
    def choose(self, told: Told, episode: int, left: int) -> Code:
        """The next guess, with `left` guesses left in the episode, including this one."""


class _MastermindPlayer:
    def __init__(self, agent: _MastermindAgent, env: Board, session: SessionView) -> None:
        self._agent = agent
        self._env = env
        self._session = session

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next guess, or correct notes; needs no state."""
        env, session = self._env, self._session
        told = read_told(env, messages)
        if session.episode_is_over:
            return write_notes(env, told), None
        episode = session.trial.episode if session.trial.carries else 0
        left = env.config.max_steps_per_episode - len(session.actions)
        return say_code(self._agent.choose(told, episode, left), env.color_names), None


class MastermindAgent(_MastermindAgent):
    """Plays one of the `env.player` kinds for the configured trial, including free shots."""

    def __init__(self, env: Board, player: str = "best") -> None:
        super().__init__(env)
        self._player = env.player(player)

    def choose(self, told: Told, episode: int, left: int) -> Code:
        """The player's guess."""
        env = self._env
        return env.space.codes[self._player.choose(env.possible(told), episode, left)]


class MastermindTeacher(_MastermindAgent):
    """Half of the time guesses a code that agrees with all feedback, else any code; its notes are
    correct. A model that imitates it learns what the feedback means, but has to find out itself how
    to use it. `seed` seeds the draws."""

    def __init__(self, env: Board, *, seed: int = 0) -> None:
        super().__init__(env)
        self._rng = random.Random(seed)

    def choose(self, told: Told, episode: int, left: int) -> Code:
        """A drawn code."""
        env = self._env
        among = env.possible(told) if self._rng.random() < 0.5 else env.space.everything
        codes = [code for number, code in enumerate(env.space.codes) if among >> number & 1]
        return self._rng.choice(codes)


def read_told(env: Board, messages: Sequence[Message]) -> Told:
    """The codes with their feedback in the conversation, in order and without duplicates."""
    names, length = env.color_names, env.config.length
    told: dict[Code, Feedback] = {}
    guess = None
    for message in messages:
        text = message["content"]
        if message["role"] == "assistant":
            guess = read_code(text, names, length)
        elif message["role"] == "user":
            told |= read_hints(text, names, length)
            answer = read_feedback(text)
            if guess is not None and answer is not None:
                told[guess], guess = answer, None
    return tuple(told.items())


def write_notes(env: Board, told: Told) -> str:
    """The guesses with their feedback, one per line."""
    return "\n".join(
        f"{say_code(code, env.color_names)}: {say_feedback(answer)}" for code, answer in told
    )
