"""The records of trials, reduced to the parts in which two plays are compared."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from agentsgym.types import Rollout


@dataclass(frozen=True, slots=True)
class Record:
    """One trial: every message, step reward, malformed flag and stop reason.

    `actions` are all that the agent said, also its reflections; `steps` counts the actions of the
    game, and `malformed` has their flags.
    """

    messages: tuple[tuple[str, str], ...]
    rewards: tuple[float, ...]
    malformed: tuple[bool, ...]
    stops: tuple[str, ...]
    actions: tuple[str, ...]
    reward: float
    win: bool | None
    error: str | None
    steps: int = 0

    @property
    def digest(self) -> str:
        """Equal if everything that the agent could see or earn is equal."""
        content: Any = [self.messages, self.rewards, self.malformed, self.stops]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()


def record_of(rollout: Rollout) -> Record:
    """The record of a rollout."""
    steps = [step for episode in rollout.episodes for step in episode.steps]
    played = [step for episode in rollout.episodes for step in episode.actions]
    wins = [episode.win for episode in rollout.episodes]
    return Record(
        messages=tuple(
            (message["role"], message["content"])
            for episode in rollout.episodes
            for message in episode.messages
        ),
        rewards=tuple(step.reward for step in steps),
        malformed=tuple(step.malformed for step in played),
        stops=tuple(episode.stop_reason for episode in rollout.episodes),
        actions=tuple(step.action for step in steps),
        reward=sum(episode.reward for episode in rollout.episodes) / max(len(wins), 1),
        win=wins[-1] if wins else None,
        error=rollout.error,
        steps=len(played),
    )


def difference(a: Record, b: Record) -> str:
    """The first difference between two records, in words; "" if they are equal."""
    if a.error or b.error:
        return f"an error: {last_line(a.error or b.error)}"
    for number, (one, other) in enumerate(zip(a.messages, b.messages, strict=False)):
        if one != other:
            return f"message {number} ({one[0]}) is {_short(one[1])} and {_short(other[1])}"
    for number, (x, y) in enumerate(zip(a.rewards, b.rewards, strict=False)):
        if x != y:
            return f"step {number} has reward {x:g} and {y:g}"
    return "" if a.digest == b.digest else f"{a.steps} and {b.steps} steps, {a.stops} and {b.stops}"


def last_line(error: str | None) -> str:
    """The last line of a traceback, which names the error."""
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else ""


def _short(text: str, length: int = 70) -> str:
    shown = " ".join(text.split())
    return repr(shown if len(shown) <= length else f"{shown[:length]}…")
