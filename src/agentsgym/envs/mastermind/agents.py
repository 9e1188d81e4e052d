"""Mastermind's players as agents: they read the conversation like any other.

They know what the conversation shows: the running episode, the earlier ones of the trial with
`carry="full"`, and with `carry="summary"` their own notes: the guesses with their feedback, one a
line, as the opening hints are told.
"""

import random
import re
from collections.abc import Sequence
from typing import Any

from agentsgym.envs.mastermind.codes import Code, Feedback
from agentsgym.envs.mastermind.env import REFLECT, MastermindEnv, Told
from agentsgym.envs.mastermind.wording import (
    read_code,
    read_feedback,
    read_hints,
    say_code,
    say_feedback,
)
from agentsgym.types import Message

_ROUND = re.compile(r"Round (\d+) of \d+, (?:practice|scored)")
_START = re.compile(r"Guess like \"[^\"]*\"\. \d+ guesses\.$", re.MULTILINE)


class MastermindAgent:
    """Plays one of `env.player`'s kinds for the configured trial, free shots included."""

    def __init__(self, env: MastermindEnv, player: str = "best") -> None:
        self._env = env
        self._player = env.player(player)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next guess, or the notes; needs no state."""
        env = self._env
        told, episode, left = read_conversation(env, messages)
        if messages[-1]["content"].endswith(REFLECT):
            return write_notes(env, told), None
        guess = self._player.choose(env.possible(told), episode, left)
        return say_code(env.space.codes[guess], env.colour_names), None


class MastermindTeacher:
    """Half of the time a code that agrees with what it was told, else any code; true notes. A
    model that learns from it knows what answers mean, and finds out by itself to make use of it.
    Draws come from `seed`."""

    def __init__(self, env: MastermindEnv, *, seed: int = 0) -> None:
        self._env = env
        self._rng = random.Random(seed)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next guess, or the notes; needs no state."""
        env = self._env
        told, _, _ = read_conversation(env, messages)
        if messages[-1]["content"].endswith(REFLECT):
            return write_notes(env, told), None
        among = env.possible(told) if self._rng.random() < 0.5 else env.space.everything
        codes = [code for number, code in enumerate(env.space.codes) if among >> number & 1]
        return say_code(self._rng.choice(codes), env.colour_names), None


def read_conversation(env: MastermindEnv, messages: Sequence[Message]) -> tuple[Told, int, int]:
    """(codes with their feedback, in order and each once; number of the episode; guesses left)."""
    names, length = env.colour_names, env.config["length"]
    told: dict[Code, Feedback] = {}
    episode = steps = 0
    guess = None
    for message in messages:
        text = message["content"]
        if message["role"] == "assistant":
            guess, steps = read_code(text, names, length), steps + 1
        elif message["role"] == "user":
            told |= read_hints(text, names, length)
            answer = read_feedback(text)
            if guess is not None and answer is not None:
                told[guess], guess = answer, None
            if _START.search(text):
                found = _ROUND.search(text)
                episode, steps = int(found[1]) - 1 if found else 0, 0
    return tuple(told.items()), episode, env.config["max_steps_per_episode"] - steps


def write_notes(env: MastermindEnv, told: Told) -> str:
    """The guesses with their feedback, one a line."""
    return "\n".join(
        f"{say_code(code, env.colour_names)}: {say_feedback(answer)}" for code, answer in told
    )
