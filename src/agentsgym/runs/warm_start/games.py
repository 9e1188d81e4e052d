"""The games of a warm start: drawn tasks, played and filtered by reward."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from agentsgym.envs import EnvPool
from agentsgym.envs.dataset import check_row
from agentsgym.rollout import play
from agentsgym.runs.warm_start.settings import GamesConfig
from agentsgym.types import Agent, Rollout, RolloutRequest, session_seed

_ROUND = 64  # tasks played before the next are drawn
_MOST_ROUNDS_WITHOUT = 20  # rounds in which no game passes the filter


def played_games(
    rows: Sequence[Mapping[str, Any]],
    agent: Agent,
    envs: EnvPool,
    config: GamesConfig,
    seed: int,
    *,
    max_rollout_tokens: int | None = None,
    done: Sequence[int] = (),
) -> Iterator[list[Rollout]]:
    """Rounds of games on `rows`, `config.games` in all: the best of `best_of` on each drawn task.

    `done` has the number of games of each round that was played before, and is not played again.
    Raises RuntimeError if all games of a round fail, or if none has enough reward for too long.
    """
    found, without = sum(done), 0
    for number, drawn in enumerate(_drawn(rows, seed)):
        if found >= config.games:
            return
        if number < len(done):
            continue
        requests = [
            RolloutRequest.of(
                check_row(row, group),
                group,
                index,
                session_seed(seed, "warm start", number, group, index),
                max_rollout_tokens=max_rollout_tokens,
            )
            for group, row in enumerate(drawn[: config.games - found])
            for index in range(config.best_of)
        ]
        played = _live(play(requests, agent, envs))
        kept = [rollout for rollout in best_of_groups(played) if _passes(rollout, config)]
        found, without = found + len(kept), 0 if kept else without + 1
        yield kept
        if without >= _MOST_ROUNDS_WITHOUT:
            raise RuntimeError(
                f"warm_start.min_reward: none of the last {without * len(requests)} games of the "
                f"{config.source} player had a reward of {config.min_reward:g}"
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


def _passes(rollout: Rollout, config: GamesConfig) -> bool:
    return config.min_reward is None or rollout.final_reward >= config.min_reward


def _drawn(rows: Sequence[Mapping[str, Any]], seed: int) -> Iterator[list[Mapping[str, Any]]]:
    """Endless rounds of rows; each pass over the rows has a new order."""
    order = _numbers(len(rows), seed)
    while True:
        yield [rows[number] for number in islice(order, _ROUND)]


def _numbers(size: int, seed: int) -> Iterator[int]:
    rng = np.random.default_rng(seed)
    while True:
        yield from map(int, rng.permutation(size))
