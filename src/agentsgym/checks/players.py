"""Players without a model, the trials that they play, and the records that are compared."""

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.known_game import known_play
from agentsgym.rollout.drive import advance
from agentsgym.rollout.session import Session
from agentsgym.rollout.trial import play_trial
from agentsgym.types import GenerationRequest, GenerationResult, Rollout, RolloutRequest

MOST_CANDIDATES = 400
_STOCK = ("yes", "no", "1", "0", "A", "up", "Is it an animal?", "Can it fly?", "[apple]", "hello")
_BRACKETED = re.compile(r"\[[^\[\]\n]{1,40}\]")
_OFFERED = re.compile(r"^\s*(?:[-*]|\d+[.:)])\s+(\S[^\n]{0,60})$", re.MULTILINE)
_QUOTED = re.compile(r"[\"']([^\"'\n]{1,40})[\"']")
_SERIES = re.compile(r"\b\w+(?:, \w+)*,? (?:or|and) \w+|\b\w+(?:, \w+){2,}")
_LISTED = re.compile(r"one of:?\s*([^\n.]+)", re.IGNORECASE)
_BETWEEN = re.compile(r",|\bor\b|\band\b")


class Player(Protocol):
    """Chooses an action; `number` counts the trials of a play."""

    def __call__(self, env: MultistepEnv, request: GenerationRequest, number: int) -> str: ...


def candidates(env: MultistepEnv, request: GenerationRequest) -> list[str]:
    """Actions that the environment may understand now.

    These are its `admissible_actions(state)` if it lists them. Otherwise they are the words that
    the first and the last message show in brackets, in lists, or after "one of", and a few fixed
    phrases.
    """
    listed = known_play(env).admissible_actions(env.active_states[request.session_id])
    if listed is not None:
        return list(listed)
    return harvest([message["content"] for message in request.messages])


def harvest(texts: Sequence[str]) -> list[str]:
    """The actions that a conversation offers, and fixed phrases."""
    shown = [texts[0], texts[-1]] if texts else []
    found: dict[str, None] = {}
    for text in shown:
        whole = (pattern.findall(text) for pattern in (_BRACKETED, _OFFERED, _QUOTED))
        found |= dict.fromkeys(match.strip() for matches in whole for match in matches)
        for series in (*_LISTED.findall(text), *_SERIES.findall(text)):
            found |= dict.fromkeys(word.strip() for word in _BETWEEN.split(series))
    return [*[action for action in found if action][:MOST_CANDIDATES], *_STOCK]


class RandomPlayer:
    """Picks one of the candidates, and sometimes an invalid action.

    The choice depends only on the seed, the trial's number and the step.
    """

    def __init__(self, seed: int, nonsense: float = 0.1) -> None:
        self._seed = seed
        self._nonsense = nonsense

    def __call__(self, env: MultistepEnv, request: GenerationRequest, number: int) -> str:
        """One of the candidates."""
        rng = random.Random(f"{self._seed} {number} {len(request.messages)}")
        if rng.random() < self._nonsense:
            return f"nonsense {rng.randrange(1000)}"
        return rng.choice(candidates(env, request) or list(_STOCK))


class Always:
    """Says the same at every step."""

    def __init__(self, action: str) -> None:
        self.action = action

    def __call__(self, env: MultistepEnv, request: GenerationRequest, number: int) -> str:
        """The action."""
        return self.action


class Replay:
    """Repeats recorded actions, each trial of them once, in all its episodes."""

    def __init__(self, actions: Sequence[Sequence[str]]) -> None:
        self._scripts = [iter(script) for script in actions]

    def __call__(self, env: MultistepEnv, request: GenerationRequest, number: int) -> str:
        """The next recorded action of the trial; "" if the first play was shorter."""
        return next(self._scripts[number], "")


def copycat(env: MultistepEnv, request: GenerationRequest, number: int) -> str:
    """Repeats the observation."""
    return request.messages[-1]["content"]


def words_in(task: Any) -> list[str]:
    """Every short text in a task, at any depth: possible parts of an answer."""
    if isinstance(task, str):
        return [task] if 0 < len(task) <= 60 else []
    parts = task.values() if isinstance(task, Mapping) else task
    if isinstance(task, Mapping | list | tuple):
        return [word for part in parts for word in words_in(part)]
    return []


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


Task = Mapping[str, Any]


def play_alone(
    env: MultistepEnv, tasks: Sequence[Task], player: Player, *, first: int = 0
) -> list[Record]:
    """Play one trial of each task, one after the other."""
    return [_finish(_Trial(env, task, first + k, player)) for k, task in enumerate(tasks)]


def play_interleaved(
    env: MultistepEnv, tasks: Sequence[Task], player: Player, *, seed: int = 0
) -> list[Record]:
    """Play one trial of each task, all open at once, with their steps in a random order."""
    rng = random.Random(seed)
    running = [_Trial(env, task, number, player) for number, task in enumerate(tasks)]
    records: dict[int, Record] = {}
    while running:
        trial = rng.choice(running)
        done = trial.step()
        if done is not None:
            records[trial.number] = done
            running.remove(trial)
    return [records[number] for number in range(len(tasks))]


class _Trial:
    """A trial that a player plays step by step."""

    def __init__(self, env: MultistepEnv, task: Task, number: int, player: Player) -> None:
        self.number = number
        self._env = env
        self._player = player
        self._request: GenerationRequest | None = None
        sid = f"check-{number:05d}"
        asked = RolloutRequest(env.class_path, env.env_config, task, number, 0, number, sid)
        self._generator = play_trial(Session(env, asked))

    def step(self) -> Record | None:
        """Read the first prompt, or answer one; the record where that was the last step."""
        outcome = advance(self._generator, self._answer())
        if not isinstance(outcome, GenerationRequest):
            return record_of(outcome)
        self._request = outcome
        return None

    def _answer(self) -> GenerationResult | None:
        if self._request is None:
            return None
        return GenerationResult.of_text(self._player(self._env, self._request, self.number))


def _finish(trial: _Trial) -> Record:
    while True:
        done = trial.step()
        if done is not None:
            return done
