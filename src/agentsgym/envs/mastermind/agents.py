"""Mastermind's players as agents: they read the conversation like any other.

They know what the conversation shows: the running episode, the earlier ones of the trial with
`carry="full"`, and with `carry="summary"` their own notes: the guesses with their feedback, one a
line, as the opening hints are told. Which episode is running, how many guesses are left, and
whether notes are asked for, their session tells them.
"""

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
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
    """The environment as its players need it."""

    colour_names: tuple[str, ...]
    space: CodeSpace
    config: Mapping[str, Any]

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
        """The next guess, with `left` guesses left in the episode, this one included."""


class _MastermindPlayer:
    def __init__(self, agent: _MastermindAgent, env: Board, session: SessionView) -> None:
        self._agent = agent
        self._env = env
        self._session = session

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next guess, or true notes; needs no state."""
        env, session = self._env, self._session
        told = read_told(env, messages)
        if session.episode_is_over:
            return write_notes(env, told), None
        episode = session.trial.episode if session.trial.carries else 0
        left = env.config["max_steps_per_episode"] - len(session.actions)
        return say_code(self._agent.choose(told, episode, left), env.colour_names), None


class MastermindAgent(_MastermindAgent):
    """Plays one of `env.player`'s kinds for the configured trial, free shots included."""

    def __init__(self, env: Board, player: str = "best") -> None:
        super().__init__(env)
        self._player = env.player(player)

    def choose(self, told: Told, episode: int, left: int) -> Code:
        """The player's guess."""
        env = self._env
        return env.space.codes[self._player.choose(env.possible(told), episode, left)]


class MastermindTeacher(_MastermindAgent):
    """Half of the time a code that agrees with what it was told, else any code; true notes. A
    model that learns from it knows what answers mean, and finds out by itself to make use of it.
    Draws come from `seed`."""

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
    """The codes with their feedback that the conversation shows, in order and each once."""
    names, length = env.colour_names, env.config["length"]
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
    """The guesses with their feedback, one a line."""
    return "\n".join(
        f"{say_code(code, env.colour_names)}: {say_feedback(answer)}" for code, answer in told
    )
