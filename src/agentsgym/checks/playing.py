"""Players without a model, the trials that they play, and the records that are compared."""

import hashlib
import json
import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


ActionChoice = Callable[[MultistepEnv, GenerationRequest, int], str]
"""A player: the environment, what it asks, and the number of the trial → an action."""


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


def random_player(seed: int, nonsense: float = 0.1) -> ActionChoice:
    """A player that picks one of the candidates, and sometimes an invalid action.

    The choice depends only on the seed, the trial's number and the step.
    """

    def choose(env: MultistepEnv, request: GenerationRequest, number: int) -> str:
        rng = random.Random(f"{seed} {number} {len(request.messages)}")
        if rng.random() < nonsense:
            return f"nonsense {rng.randrange(1000)}"
        return rng.choice(candidates(env, request) or list(_STOCK))

    return choose


def always(action: str) -> ActionChoice:
    """A player that says the same at every step."""
    return lambda env, request, number: action


def replay(actions: Sequence[Sequence[str]]) -> ActionChoice:
    """A player that repeats recorded actions, each trial of them once, in all its episodes; "" if
    the first play was shorter."""
    scripts = [iter(script) for script in actions]
    return lambda env, request, number: next(scripts[number], "")


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
class PlayedTrial:
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


def record_of(rollout: Rollout) -> PlayedTrial:
    """The record of a rollout."""
    steps = [step for episode in rollout.episodes for step in episode.steps]
    played = [step for episode in rollout.episodes for step in episode.actions]
    wins = [episode.win for episode in rollout.episodes]
    return PlayedTrial(
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


def difference(a: PlayedTrial, b: PlayedTrial) -> str:
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
    env: MultistepEnv, tasks: Sequence[Task], player: ActionChoice, *, first: int = 0
) -> list[PlayedTrial]:
    """Play one trial of each task, one after the other."""
    records = []
    for number, task in enumerate(tasks, start=first):
        trial = _play(env, task, number, player)
        while (record := _next(trial)) is None:
            pass
        records.append(record)
    return records


def play_interleaved(
    env: MultistepEnv, tasks: Sequence[Task], player: ActionChoice, *, seed: int = 0
) -> list[PlayedTrial]:
    """Play one trial of each task, all open at once, with their steps in a random order."""
    rng = random.Random(seed)
    running = {number: _play(env, task, number, player) for number, task in enumerate(tasks)}
    records: dict[int, PlayedTrial] = {}
    while running:
        number = rng.choice(list(running))
        record = _next(running[number])
        if record is not None:
            records[number] = record
            del running[number]
    return [records[number] for number in range(len(tasks))]


_Play = Generator[None, None, PlayedTrial]


def _play(env: MultistepEnv, task: Task, number: int, player: ActionChoice) -> _Play:
    """A trial that stops before each action of the player."""
    sid = f"check-{number:05d}"
    request = RolloutRequest(env.class_path, env.env_config, task, number, 0, number, sid)
    trial = play_trial(Session(env, request))
    outcome = advance(trial, None)
    while isinstance(outcome, GenerationRequest):
        yield
        answer = GenerationResult.of_text(player(env, outcome, number))
        outcome = advance(trial, answer)
    return record_of(outcome)


def _next(trial: _Play) -> PlayedTrial | None:
    """The next step; the record where the trial is over."""
    try:
        next(trial)
    except StopIteration as end:
        record: PlayedTrial = end.value
        return record
    return None
