"""The bandit's players as agents; they read the conversation.

They use the running episode, with `carry="full"` the earlier episodes of the trial, and with
`carry="summary"` their own notes: "red 2 won 1 lost, green 0 won 1 lost". Their session says which
pull of the trial is next and whether notes are requested.
"""

import random
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from agentsgym.envs.bandit.beliefs import Counts, add, no_counts, observe
from agentsgym.envs.bandit.horizon import FiniteHorizon
from agentsgym.envs.bandit.thompson import sample_arm
from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView, TrialInfo


class Arms(Protocol):
    """The members of the environment that its players need."""

    arm_names: tuple[str, ...]
    pulls: int
    prior: tuple[float, float]

    @property
    def weights(self) -> tuple[float, ...]: ...

    @property
    def best_play(self) -> FiniteHorizon: ...

    def read_arm(self, action: str) -> int | None: ...


class _BanditAgent(PrivilegedAgent):
    def __init__(self, env: Arms) -> None:
        self._env = env

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session."""
        return _BanditPlayer(self, self._env, session)

    @abstractmethod
    def choose(self, messages: Sequence[Message], pulled: int) -> int:
        """The arm for pull number `pulled` of the trial, after this conversation."""


class _BanditPlayer:
    def __init__(self, agent: _BanditAgent, env: Arms, session: SessionView) -> None:
        self._agent = agent
        self._env = env
        self._session = session

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The name of an arm, or correct notes; needs no state."""
        env, session = self._env, self._session
        if session.episode_is_over:
            return write_notes(env, read_counts(env, messages)), None
        pulled = pull_index(env, session.trial, len(session.actions))
        return env.arm_names[self._agent.choose(messages, pulled)], None


class BanditOptimalAgent(_BanditAgent):
    """Plays `env.best_play`: Bayes-optimal for the configured trial, free shots included."""

    def choose(self, messages: Sequence[Message], pulled: int) -> int:
        """The best arm."""
        return self._env.best_play.best_arm(read_counts(self._env, messages), pulled)


class ThompsonAgent(_BanditAgent):
    """Thompson sampling from the posterior, top-two in free shots; `seed` seeds the draws."""

    def __init__(self, env: Arms, *, seed: int = 0) -> None:
        super().__init__(env)
        self._rng = random.Random(seed)

    def choose(self, messages: Sequence[Message], pulled: int) -> int:
        """A sampled arm."""
        explore = not self._env.weights[pulled]
        counts = read_counts(self._env, messages)
        return sample_arm(counts, self._env.prior, self._rng, explore=explore)


class BanditTeacher(_BanditAgent):
    """Pulls a random arm and writes correct notes: a model that imitates it learns how to answer
    and to remember, but has to find out itself which arm to pull. `seed` seeds the draws."""

    def __init__(self, env: Arms, *, seed: int = 0) -> None:
        super().__init__(env)
        self._rng = random.Random(seed)

    def choose(self, messages: Sequence[Message], pulled: int) -> int:
        """A random arm."""
        return self._rng.choice(range(len(self._env.arm_names)))


def pull_index(env: Arms, trial: TrialInfo, pulled: int) -> int:
    """The number of the next pull after `pulled` in this episode: in the trial for a player that
    sees its earlier episodes, else in the episode. A malformed action counts: it costs a pull."""
    return (trial.episode if trial.carries else 0) * env.pulls + pulled


def read_counts(env: Arms, messages: Sequence[Message]) -> Counts:
    """The counts of all the pulls that the conversation shows."""
    counts = no_counts(len(env.arm_names))
    arm: int | None = None
    for message in messages:
        text = message["content"]
        if message["role"] == "assistant":
            arm = env.read_arm(text)
        elif message["role"] == "user":
            success = _outcome(env, arm, text)
            counts = add(counts, read_notes(env, text))
            if arm is not None and success is not None:
                counts, arm = observe(counts, arm, success), None
    return counts


def _outcome(env: Arms, arm: int | None, text: str) -> bool | None:
    """The outcome of the last pull, if the text contains it."""
    if arm is None:
        return None
    found = re.match(rf"{env.arm_names[arm]} (won|lost)\.", text)
    return None if found is None else found[1] == "won"


def write_notes(env: Arms, counts: Counts) -> str:
    """The counts in words."""
    pairs = zip(env.arm_names, counts, strict=True)
    return ", ".join(f"{name} {s} won {f} lost" for name, (s, f) in pairs)


def read_notes(env: Arms, text: str) -> Counts:
    """The counts in the notes at the start of a text; zeros if there are none."""
    notes = text.splitlines()[0] if text.startswith("Notes: ") else ""
    found = {n: (int(s), int(f)) for n, s, f in re.findall(r"(\w+) (\d+) won (\d+) lost", notes)}
    return tuple(found.get(name, (0, 0)) for name in env.arm_names)
