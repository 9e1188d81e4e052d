"""The bandit's players as agents: they read the conversation like any other.

They know what the conversation shows: the running episode, the earlier ones of the trial with
`carry="full"`, and with `carry="summary"` their own notes: "red 2 won 1 lost, green 0 won 1 lost".
"""

import random
import re
from collections.abc import Sequence
from typing import Any

from agentsgym.envs.bandit.beliefs import Counts, add, no_counts, observe
from agentsgym.envs.bandit.env import REFLECT, BanditEnv
from agentsgym.envs.bandit.thompson import sample_arm
from agentsgym.types import Message

_ROUND = re.compile(r"Round (\d+) of \d+, (?:practice|scored)")
_START = re.compile(r"Answer with the name\. \d+ pulls\.$")


class BanditOptimalAgent:
    """Plays `env.best_play`: Bayes-optimal for the configured trial, free shots included."""

    def __init__(self, env: BanditEnv) -> None:
        self._env = env

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The name of the best arm, or the notes; needs no state."""
        counts, pulled = read_conversation(self._env, messages)
        if messages[-1]["content"].endswith(REFLECT):
            return write_notes(self._env, counts), None
        return self._env.arm_names[self._env.best_play.best_arm(counts, pulled)], None


class ThompsonAgent:
    """Thompson sampling from the posterior, top-two in free shots; draws come from `seed`."""

    def __init__(self, env: BanditEnv, *, seed: int = 0) -> None:
        self._env = env
        self._rng = random.Random(seed)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The name of the sampled arm, or the notes; needs no state."""
        counts, pulled = read_conversation(self._env, messages)
        if messages[-1]["content"].endswith(REFLECT):
            return write_notes(self._env, counts), None
        explore = not self._env.weights[pulled]
        arm = sample_arm(counts, self._env.prior, self._rng, explore=explore)
        return self._env.arm_names[arm], None


class BanditTeacher:
    """Pulls any arm and writes true notes: a model that learns from it knows how to answer and to
    remember, and finds out by itself what to pull. Draws come from `seed`."""

    def __init__(self, env: BanditEnv, *, seed: int = 0) -> None:
        self._env = env
        self._rng = random.Random(seed)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The name of an arm, or the notes; needs no state."""
        if messages[-1]["content"].endswith(REFLECT):
            return write_notes(self._env, read_conversation(self._env, messages)[0]), None
        return self._rng.choice(self._env.arm_names), None


def read_conversation(env: BanditEnv, messages: Sequence[Message]) -> tuple[Counts, int]:
    """(counts of all the pulls that the conversation shows, index of the pull that is due).

    Malformed actions waste a pull: they count in the index and not in the counts.
    """
    counts = no_counts(len(env.arm_names))
    episode = steps = 0
    arm: int | None = None
    for message in messages:
        text = message["content"]
        if message["role"] == "assistant":
            arm, steps = env.read_arm(text), steps + 1
        elif message["role"] == "user":
            success = _outcome(env, arm, text)
            counts = add(counts, read_notes(env, text))
            if arm is not None and success is not None:
                counts, arm = observe(counts, arm, success), None
            if _START.search(text):
                found = _ROUND.search(text)
                episode, steps = int(found[1]) - 1 if found else 0, 0
    return counts, episode * env.pulls + steps


def _outcome(env: BanditEnv, arm: int | None, text: str) -> bool | None:
    """How the last pull ended, if the text says it."""
    if arm is None:
        return None
    found = re.match(rf"{env.arm_names[arm]} (won|lost)\.", text)
    return None if found is None else found[1] == "won"


def write_notes(env: BanditEnv, counts: Counts) -> str:
    """The counts in words."""
    pairs = zip(env.arm_names, counts, strict=True)
    return ", ".join(f"{name} {s} won {f} lost" for name, (s, f) in pairs)


def read_notes(env: BanditEnv, text: str) -> Counts:
    """The counts in the notes that a text begins with; zeros where it has none."""
    notes = text.splitlines()[0] if text.startswith("Notes: ") else ""
    found = {n: (int(s), int(f)) for n, s, f in re.findall(r"(\w+) (\d+) won (\d+) lost", notes)}
    return tuple(found.get(name, (0, 0)) for name in env.arm_names)
