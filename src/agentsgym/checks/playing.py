"""Playing trials with a player, one after another or all at once."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentsgym.checks.players import Player
from agentsgym.checks.records import Record, record_of
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import advance
from agentsgym.rollout.session import Session
from agentsgym.rollout.trial import play_trial
from agentsgym.types import GenerationRequest, GenerationResult, RolloutRequest

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
