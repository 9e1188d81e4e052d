"""Players without a model: random ones that read the environment, and fixed ones."""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.known_game import known_play
from agentsgym.types import GenerationRequest

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
