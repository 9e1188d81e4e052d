"""How long a learner waits for rollouts: synchronous, and with sampling up to k generations ahead.

The learner only sleeps. The batches are those of the trainer: `AheadPlayer` over a `LocalSource`.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import scale_game as game
from scale_engine import LatencyEngine
from scale_env import tokenizer_of

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.rollout import LocalSource, play
from agentsgym.training.rollouts.ahead import AheadPlayer
from agentsgym.training.rollouts.group_order import Submitted
from agentsgym.types import (
    GenerationRequest,
    GenerationResult,
    Rollout,
    RolloutRequest,
    SamplingParams,
    WeightUpdate,
    session_seed,
)

SAMPLING = SamplingParams(64)


class LearningEngine(LatencyEngine):
    """A `LatencyEngine` that takes weights while it samples: a number. Each session has noise of
    its own, so that the rollouts of a group differ."""

    policy_version = 0
    can_generate_ahead = True
    can_update_while_sampling = True

    def draw_of(self, request: GenerationRequest) -> int:
        """The draw of a request."""
        return game.drawn("request", request.seed, len(request.messages) // 2)

    def poll(self) -> list[GenerationResult]:
        """The answers that are due, with the version of now."""
        return [_at(result, self.policy_version) for result in super().poll()]

    def update_weights(self, update: WeightUpdate) -> None:
        """Sample from this version from now on."""
        self.policy_version = update.version

    def finish(self) -> None:
        """Nothing is collective here."""

    def close(self) -> None:
        """There is no connection."""


def _at(result: GenerationResult, version: int) -> GenerationResult:
    return replace(result, policy_version=version)


@dataclass(frozen=True)
class Plan:
    """`generations` batches of `groups` groups of `size` games, of at most `turns` turns each."""

    generations: int
    groups: int
    size: int
    turns: int
    tokenizer: str
    slower: float = 1.0

    def requests(self, group: int) -> list[RolloutRequest]:
        """The requests of a group."""
        row = {
            "env_class_path": "benchmarks/Scale",
            "env_config": {"max_steps_per_episode": self.turns},
            "task_data": {"game": group, "turns": game.turns(group, self.turns)},
        }
        return [
            RolloutRequest.of(row, group, index, session_seed(0, group, index))
            for index in range(self.size)
        ]

    def numbers(self, generation: int) -> range:
        """The groups of a generation."""
        return range(generation * self.groups, (generation + 1) * self.groups)

    @property
    def places(self) -> int:
        """A place in the engine for each rollout of a generation."""
        return self.groups * self.size


def compared(plan: Plan, ahead: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    """The learner's waiting share by k, where it learns as long as a synchronous generation takes
    to be sampled."""
    sampling = _synchronous(plan)
    learning = sum(sampling) / len(sampling)
    shares = {0: 0.5}  # by construction: what it waits equals what it learns
    for k in ahead:
        shares[k] = _share(_ahead(plan, k, learning), learning)
    busy = sum(map(_seconds, _all(plan))) * plan.slower / plan.places / plan.generations
    tight = {k: _share(_ahead(plan, k, busy), busy) for k in ahead}
    return {
        "generation_seconds": round(learning, 3),
        "learner_waits": {k: round(share, 4) for k, share in shares.items()},
        "generation_seconds_if_full": round(busy, 3),
        "learner_waits_if_full": {k: round(share, 4) for k, share in tight.items()},
    }


def _all(plan: Plan) -> Iterator[RolloutRequest]:
    for number in range(plan.generations * plan.groups):
        yield from plan.requests(number)


def _seconds(request: RolloutRequest) -> float:
    """How long the answers of a session take."""
    turns = range(request.task_data["turns"])
    return sum(game.latency(game.drawn("request", request.seed, turn)) for turn in turns)


def _engine(plan: Plan) -> tuple[LearningEngine, EnvPool]:
    tokenizer = tokenizer_of(plan.tokenizer)
    engine = LearningEngine(tokenizer, plan.places, slower=plan.slower)
    return engine, EnvPool(tokenizer)


def _synchronous(plan: Plan) -> list[float]:
    """Seconds of each generation, one after the other."""
    engine, envs = _engine(plan)
    seconds = []
    for generation in range(plan.generations):
        requests = [r for number in plan.numbers(generation) for r in plan.requests(number)]
        start = time.perf_counter()
        _check(play(requests, DirectOutputAgent(engine, SAMPLING), envs), oldest=0)
        seconds.append(time.perf_counter() - start)
    return seconds


def _ahead(plan: Plan, k: int, learning: float) -> list[float]:
    """Seconds of waiting for each batch after the first k + 1, which fill the queue."""
    engine, envs = _engine(plan)
    source = LocalSource(DirectOutputAgent(engine, SAMPLING), envs)
    player = AheadPlayer(
        source,
        plan.requests,
        plan.numbers,
        groups=plan.groups,
        ahead=k,
        updates=1,
        batches=plan.generations + k,
        submitted=Submitted(0),
    )
    waited = []
    try:
        for step in range(plan.generations):
            start = time.perf_counter()
            source.use_weights(WeightUpdate(None, step, Path()))
            _, rollouts = player.batch(step)
            waited.append(time.perf_counter() - start)
            _check(rollouts, oldest=step - k)
            time.sleep(learning)
    finally:
        source.close()
    return waited[k + 1 :]


def _share(waited: list[float], learning: float) -> float:
    total = sum(waited)
    return total / (total + learning * len(waited))


def _check(rollouts: list[Rollout], oldest: int) -> None:
    """End without figures if a rollout is wrong or older than allowed."""
    for rollout in rollouts:
        if rollout.failed:
            sys.exit(rollout.error)
        turns, said = rollout.task_data["turns"], rollout.episodes[0].steps[-1].action
        if rollout.final_reward != game.reward(turns, said):
            sys.exit(f"{rollout.session_id} earned {rollout.final_reward}")
        if rollout.policy_version < oldest:
            sys.exit(f"{rollout.session_id} has version {rollout.policy_version}, not {oldest}")
