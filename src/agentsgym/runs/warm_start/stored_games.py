"""The games of another run as a source of a warm start. Its directory may come from anybody: only
the texts of its games are used, and what no game can contain is left out."""

import heapq
import math
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from agentsgym.envs import ConfigError
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.formats import NewerFormat
from agentsgym.runs.files.rollouts import read_shard
from agentsgym.runs.warm_start.rerender import rerendered
from agentsgym.runs.warm_start.settings import GamesConfig
from agentsgym.tokens import Codec
from agentsgym.types import Rollout

Note = Callable[[str], None]
Wanted = Callable[[Rollout], bool]


def check_run(folder: str) -> RunDirectory:
    """The directory of a run with training rollouts. Raises ConfigError if it is none."""
    directory = RunDirectory(Path(folder))
    if not any(phase == "train" for phase, _, _ in directory.shards()):
        raise ConfigError(f"warm_start.run: {folder} holds no training rollouts of a run")
    return directory


def stored_games(
    config: GamesConfig, codec: Codec, wanted: Wanted, max_tokens: int | None, note: Note
) -> list[Rollout]:
    """The best training game of each group of a run, at most `config.games`, those with most
    reward, of equal ones the later.

    `wanted` selects games by environment and task. Damaged files and games are left out with a
    note. Raises ConfigError if no game remains.
    """
    found: list[tuple[float, int, int, Rollout]] = []
    bad = count = 0
    for step, rollout in _best(check_run(str(config.run)), wanted, config, note):
        count += 1
        try:
            game = rerendered(rollout, codec, max_tokens)
        except (ValueError, TypeError, KeyError):
            bad += 1
            continue
        found.append((rollout.final_reward, step, -count, game))
        found = heapq.nlargest(config.games, found)
    if bad:
        note(f"warm_start.run: {bad} of {count} games are left out: damaged or too long")
    if not found:
        raise ConfigError(
            f"warm_start.run: {config.run} holds no game of this environment's training tasks"
            + ("" if config.min_reward is None else f" with a reward of {config.min_reward:g}")
        )
    return [game for *_, game in found]


def _best(
    directory: RunDirectory, wanted: Wanted, config: GamesConfig, note: Note
) -> Iterator[tuple[int, Rollout]]:
    """Step and best game of each group."""
    shards = [(step, path) for phase, step, path in directory.shards() if phase == "train"]
    for step, files in groupby(shards, key=itemgetter(0)):
        best: dict[int, Rollout] = {}  # a group may continue in the next shard
        for _, path in files:
            try:
                for line in read_shard(path):
                    one = line.rollout
                    if (
                        _counts(one, config)
                        and wanted(one)
                        and _is_better(one, best.get(one.group))
                    ):
                        best[one.group] = one
            except (DamagedFile, NewerFormat) as error:
                note(f"warm_start.run: {error}; the rest of this file is left out")
        yield from ((step, rollout) for rollout in best.values())


def _counts(rollout: Rollout, config: GamesConfig) -> bool:
    if rollout.failed or not math.isfinite(rollout.final_reward):
        return False
    return config.min_reward is None or rollout.final_reward >= config.min_reward


def _is_better(rollout: Rollout, known: Rollout | None) -> bool:
    return known is None or rollout.final_reward > known.final_reward
