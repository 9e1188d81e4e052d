"""The games of a warm start: played by an agent of the environment or a model behind an endpoint,
or stored."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import ConfigError, EnvPool, MultistepEnv
from agentsgym.envs.dataset import check_row
from agentsgym.evaluation import default_cluster
from agentsgym.generation.factory import ENGINES, make_engine
from agentsgym.generation.settings import EngineParts
from agentsgym.rollout import play
from agentsgym.runs.from_config import check_installed
from agentsgym.runs.scripted_agents import scripted_agent
from agentsgym.runs.warm_start.stored import check_stored, stored_games
from agentsgym.training.warm_start_settings import CHAT, EXPORT, ROLLOUTS, WarmStartSettings
from agentsgym.types import Agent, Rollout, RolloutRequest, SamplingParams, session_seed

_MOST_COMPARED = 100_000  # training rows
_ROUND = 64  # tasks played before the next are drawn
_MOST_ROUNDS_WITHOUT = 20  # rounds in which no game passes the filter


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the run gives a source: its environment without a tokenizer, its training rows and
    held-out rows, the environments with the model's tokenizer, and the run's limits."""

    env: MultistepEnv
    rows: Sequence[Mapping[str, Any]]
    held_out: Iterable[Mapping[str, Any]]
    envs: EnvPool
    max_rollout_tokens: int | None
    note: Callable[[str], None]


def check_source(settings: WarmStartSettings, env: MultistepEnv) -> None:
    """Raise ConfigError if the source is not there."""
    if settings.source in (ROLLOUTS, EXPORT):
        check_stored(settings)
    elif settings.source == CHAT:
        check_installed(ENGINES[CHAT])
    else:
        teacher_of(settings, env)


def source_games(
    settings: WarmStartSettings, around: Surroundings, done: Sequence[int] = ()
) -> Iterator[Sequence[Rollout]]:
    """The games in parts, to be kept as they come; `done` has the numbers of games in the parts
    that were kept before, which are left out. Raises the errors of its source."""
    if settings.source in (ROLLOUTS, EXPORT):
        codec = around.envs.get(around.rows[0]).codec
        assert codec is not None
        wanted = _of_training_tasks(around)
        yield stored_games(settings, codec, wanted, around.max_rollout_tokens, around.note)
        return
    with _player(settings, around) as agent:
        yield from _played_games(settings, around, agent, done)


def _of_training_tasks(around: Surroundings) -> Callable[[Rollout], bool]:
    """Selects games of this environment, but none on a task that only the evaluation has. Of a
    large training set not every row is read: then none on any task of the evaluation."""
    held_out = {default_cluster(row["task_data"]) for row in around.held_out}
    if len(around.rows) <= _MOST_COMPARED:
        held_out -= {default_cluster(row["task_data"]) for row in around.rows}
    path = around.env.class_path

    def wanted(rollout: Rollout) -> bool:
        same = rollout.env_class_path == path
        return same and default_cluster(rollout.task_data) not in held_out

    return wanted


# -- agents that play ------------------------------------------------------------------------------


def teacher_of(settings: WarmStartSettings, env: MultistepEnv) -> Agent:
    """The environment's agent that is imitated. Raises ConfigError if it has none."""
    try:
        return scripted_agent(env, str(settings.source), seed=settings.seed)
    except ConfigError as error:
        raise ConfigError(f"warm_start.source: {error}") from error


@contextmanager
def _player(settings: WarmStartSettings, around: Surroundings) -> Iterator[Agent]:
    if settings.source != CHAT:
        yield teacher_of(settings, around.env)
        return
    assert settings.engine is not None
    engine = make_engine(settings.engine.as_engine(), EngineParts(), training=False)
    sampling = SamplingParams(settings.max_answer_tokens, settings.temperature)
    try:
        yield DirectOutputAgent(engine, sampling, seed=settings.seed)
    finally:
        engine.close()


def _played_games(
    settings: WarmStartSettings, around: Surroundings, agent: Agent, done: Sequence[int]
) -> Iterator[list[Rollout]]:
    """Rounds of games, `games` in all: the best of `best_of` on each drawn task.

    Raises RuntimeError if all games of a round fail, or if none has enough reward for too long.
    """
    count, without = sum(done), 0
    for number, drawn in enumerate(_drawn(around.rows, settings.seed)):
        if count >= settings.games:
            return
        if number < len(done):
            continue
        requests = [
            RolloutRequest.of(
                check_row(row, group),
                group,
                index,
                session_seed(settings.seed, "warm start", number, group, index),
                max_rollout_tokens=around.max_rollout_tokens,
            )
            for group, row in enumerate(drawn[: settings.games - count])
            for index in range(settings.best_of)
        ]
        best = best_of_groups(_live(play(requests, agent, around.envs)))
        least = settings.min_reward
        kept = [game for game in best if least is None or game.final_reward >= least]
        count, without = count + len(kept), 0 if kept else without + 1
        yield kept
        if without >= _MOST_ROUNDS_WITHOUT:
            raise RuntimeError(
                f"warm_start.min_reward: none of the last {without * len(requests)} games of the "
                f"{settings.source} player had a reward of {least:g}"
            )


def _live(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollouts that did not fail. Raises RuntimeError if all did."""
    live = [rollout for rollout in rollouts if not rollout.failed]
    if not live:
        last = str(rollouts[0].error).strip().splitlines()[-1]
        raise RuntimeError(f"every game of the warm start failed; the first: {last}")
    return live


def best_of_groups(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollout with the highest reward of each group, the first of equal ones."""
    best: dict[int, Rollout] = {}
    for rollout in rollouts:
        known = best.get(rollout.group)
        if known is None or rollout.final_reward > known.final_reward:
            best[rollout.group] = rollout
    return list(best.values())


def _drawn(rows: Sequence[Mapping[str, Any]], seed: int) -> Iterator[list[Mapping[str, Any]]]:
    """Endless rounds of rows; each pass over the rows has a new order."""
    order = _numbers(len(rows), seed)
    while True:
        yield [rows[number] for number in islice(order, _ROUND)]


def _numbers(size: int, seed: int) -> Iterator[int]:
    rng = np.random.default_rng(seed)
    while True:
        yield from map(int, rng.permutation(size))
