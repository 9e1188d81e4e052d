"""Playing trials with a player, one after another or all at once."""

import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.checks.players import Player
from agentsgym.checks.records import Record, record_of
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.trial import Trial, TrialSpec
from agentsgym.types import Action, ActionRequest, Rollout

Task = Mapping[str, Any]


@dataclass(slots=True)
class _Open:
    number: int
    generator: Generator[ActionRequest, Action, Rollout]
    request: ActionRequest | None = None


def play_alone(
    env: MultistepEnv, tasks: Sequence[Task], player: Player, *, first: int = 0
) -> list[Record]:
    """Play one trial of each task, one after the other."""
    return [_finish(env, _open(env, task, first + k), player) for k, task in enumerate(tasks)]


def play_interleaved(
    env: MultistepEnv, tasks: Sequence[Task], player: Player, *, seed: int = 0
) -> list[Record]:
    """Play one trial of each task, all open at once, with their steps in a random order."""
    rng = random.Random(seed)
    running = [_open(env, task, number) for number, task in enumerate(tasks)]
    records: dict[int, Record] = {}
    while running:
        session = rng.choice(running)
        done = _advance(env, session, player)
        if done is not None:
            records[session.number] = done
            running.remove(session)
    return [records[number] for number in range(len(tasks))]


def _open(env: MultistepEnv, task: Task, number: int) -> _Open:
    spec = TrialSpec(f"check-{number:05d}", number, 0, task, seed=number)
    return _Open(number, Trial(env, spec).play())


def _finish(env: MultistepEnv, session: _Open, player: Player) -> Record:
    while True:
        done = _advance(env, session, player)
        if done is not None:
            return done


def _advance(env: MultistepEnv, session: _Open, player: Player) -> Record | None:
    """Take one step; return the record if it was the last step."""
    try:
        if session.request is None:
            session.request = next(session.generator)
        else:
            action = player(env, session.request, session.number)
            session.request = session.generator.send(Action(action))
    except StopIteration as stop:
        return record_of(stop.value)
    return None
