"""Players without a model, the trials that they play, and how these are compared."""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import advance
from agentsgym.rollout.failures import last_line
from agentsgym.rollout.session import Session, SessionError, checked_actions
from agentsgym.rollout.trial import play_trial
from agentsgym.types import (
    GenerationRequest,
    GenerationResult,
    Rollout,
    RolloutRequest,
    Step,
    ToolSchema,
)
from agentsgym.types.text import short_repr
from agentsgym.types.tool_actions import calling

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

Player = Callable[[MultistepEnv, GenerationRequest, int], str | GenerationResult]
"""The same, or one that answers as an engine does, with the tokens that it sampled."""


def candidates(env: MultistepEnv, request: GenerationRequest) -> list[str]:
    """Actions that the environment may understand now.

    These are its `admissible_actions(state)` if it lists them. Otherwise they are the words that
    the first and the last message show in brackets, in lists, or after "one of", and a few fixed
    phrases; where the environment has tools of its own also calls of these with such words.
    """
    with suppress(SessionError):  # the check of admissible actions names it
        listed = checked_actions(env.admissible_actions(env.active_states[request.session_id]))
        if listed is not None:
            return listed
    words = harvest([message.content for message in request.messages])
    if env.config.action_form == "tool":
        return words
    return [*words, *(call for schema in env.tool_schemas for call in _calls(schema, words))]


def _calls(schema: ToolSchema, words: Sequence[str]) -> Iterator[str]:
    """Calls of a tool, as many as there are words, whose arguments are of the right types."""
    function = schema["function"]
    properties = function["parameters"].get("properties", {})
    for number, word in enumerate(words):
        arguments = {key: _value(one, number, word) for key, one in properties.items()}
        yield calling(function["name"], **arguments)


def _value(schema: Mapping[str, Any], number: int, word: str) -> Any:
    options = schema.get("enum")
    if options:
        return options[number % len(options)]
    values = {"integer": number, "number": number / 2, "boolean": number % 2 == 0, "array": [word]}
    return values.get(schema.get("type", ""), word)


def harvest(texts: Sequence[str]) -> list[str]:
    """The actions that a conversation offers, and fixed phrases."""
    shown = [texts[0], texts[-1]] if texts else []
    actions: dict[str, None] = {}
    for text in shown:
        whole = (pattern.findall(text) for pattern in (_BRACKETED, _OFFERED, _QUOTED))
        actions |= dict.fromkeys(match.strip() for matches in whole for match in matches)
        for series in (*_LISTED.findall(text), *_SERIES.findall(text)):
            actions |= dict.fromkeys(word.strip() for word in _BETWEEN.split(series))
    return [*[action for action in actions if action][:MOST_CANDIDATES], *_STOCK]


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
    return request.messages[-1].content


def words_in(task: Any) -> list[str]:
    """Every short text in a task, at any depth: possible parts of an answer."""
    if isinstance(task, str):
        return [task] if 0 < len(task) <= 60 else []
    parts = task.values() if isinstance(task, Mapping) else task
    if isinstance(task, Mapping | list | tuple):
        return [word for part in parts for word in words_in(part)]
    return []


def agent_texts(rollout: Rollout) -> list[str]:
    """The texts of the agent: its actions and reflections."""
    return [step.action for step in rollout.steps]


def taken(rollout: Rollout) -> list[Step]:
    """The actions of the game."""
    return [step for episode in rollout.episodes for step in episode.actions]


def reward_of(rollout: Rollout) -> float:
    """The mean reward of all episodes, also of free shots; 0 where none was played."""
    rewards = [episode.reward for episode in rollout.episodes]
    return sum(rewards) / max(len(rewards), 1)


def events(rollout: Rollout) -> list[tuple[str, Any]]:
    """Everything that the agent could see or earn, each with its name."""
    facts: list[tuple[str, Any]] = []
    for e in rollout.episodes:
        facts += [(f"message {n} ({m.role})", m.content) for n, m in enumerate(e.messages)]
        facts += [(f"the reward of step {step.index}", step.reward) for step in e.steps]
        facts += [(f"whether step {step.index} is malformed", step.malformed) for step in e.steps]
        facts.append(("the end", e.stop_reason))
    return facts


def difference(a: Rollout, b: Rollout) -> str:
    """The first difference between two trials, in words; "" if they are equal."""
    if error := a.error or b.error:
        return f"an error: {last_line(error)}"
    for (what, one), (_, other) in zip(events(a), events(b), strict=False):
        if one != other:
            return f"{what} is {short_repr(one)} and {short_repr(other)}"
    same = len(events(a)) == len(events(b))
    return "" if same else f"{len(taken(a))} and {len(taken(b))} steps"


Task = Mapping[str, Any]


def play_in_turn(
    env: MultistepEnv, tasks: Sequence[Task], player: Player, *, first: int = 0
) -> list[Rollout]:
    """Play one trial of each task, one after the other."""
    requests = [_request(env, task, number) for number, task in enumerate(tasks, start=first)]
    return _play_all(env, requests, player)


def play_on(env: MultistepEnv, rollouts: Sequence[Rollout], player: Player) -> list[Rollout]:
    """Play on from the middle action of each trial, after its actions are repeated."""
    requests = [RolloutRequest.branch(one, len(one.steps) // 2, 0, one.seed) for one in rollouts]
    return _play_all(env, requests, player)


def _play_all(
    env: MultistepEnv, requests: Sequence[RolloutRequest], player: Player
) -> list[Rollout]:
    trials = [_play(env, request, player) for request in requests]
    return [rollout for trial in trials for rollout in trial if rollout is not None]


def play_interleaved(
    env: MultistepEnv, tasks: Sequence[Task], player: Player, *, seed: int = 0
) -> list[Rollout]:
    """Play one trial of each task, all open at once, with their steps in a random order."""
    rng = random.Random(seed)
    running = {n: _play(env, _request(env, task, n), player) for n, task in enumerate(tasks)}
    rollouts: dict[int, Rollout] = {}
    while running:
        number = rng.choice(list(running))
        rollout = next(running[number])
        if rollout is not None:
            rollouts[number] = rollout
            del running[number]
    return [rollouts[number] for number in range(len(tasks))]


def _request(env: MultistepEnv, task: Task, number: int) -> RolloutRequest:
    sid = f"check-{number:05d}"
    return RolloutRequest(env.class_path, env.env_config, task, number, 0, number, sid)


def _play(env: MultistepEnv, request: RolloutRequest, player: Player) -> Iterator[Rollout | None]:
    """A trial that stops with None before each action of the player, and ends with its rollout."""
    trial = play_trial(Session(env, request))
    outcome = advance(trial, None)
    while isinstance(outcome, GenerationRequest):
        yield None
        answer = player(env, outcome, request.group)
        result = GenerationResult.of_text(answer) if isinstance(answer, str) else answer
        outcome = advance(trial, result)
    yield outcome
