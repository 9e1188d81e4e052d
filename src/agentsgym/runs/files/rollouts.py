"""Every rollout of a run on disk, in shards per generation or evaluation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentsgym.runs.files.directory import RunDirectory
from agentsgym.runs.files.encoding import RolloutLine
from agentsgym.runs.files.retention import KeepRollouts, StoredShard
from agentsgym.runs.files.shard import read_group, read_shard, remove_shard, write_shards
from agentsgym.types import Rollout

__all__ = [
    "RolloutWriter",
    "drop_rollouts_from",
    "read_group",
    "read_lines",
    "read_rollouts",
    "read_shard",
    "write_set",
]

_KEEP_ALL = KeepRollouts()


class RolloutWriter:
    """A trainer's rollout sink: writes its rollouts to the run's shards, and deletes those of
    generations that `keep` does not name.

    A shard appears only when it is complete. Each of several processes writes and deletes shards of
    its own. `agent_tokens` counts the tokens that this process sampled in training.
    """

    def __init__(self, run_dir: Path, keep: KeepRollouts = _KEEP_ALL) -> None:
        self._directory = RunDirectory(run_dir)
        self._keep = keep
        self.agent_tokens = 0

    def __call__(self, rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> None:
        """Store rollouts; `info` has `phase`, `step`, `advantages` by row or None, the process's
        `rank` if there are several, and the `dataset`'s name if there are several evaluation sets.
        """
        phase, step, rank = info["phase"], info["step"], info.get("rank", 0)
        lines = _lines(rollouts, info)
        write_set(self._directory, phase, step, lines, dataset=info.get("dataset"), rank=rank)
        if phase == "train":
            self.agent_tokens += sum(rollout.agent_tokens for rollout in rollouts)
            self._delete_outdated(rank)

    def _delete_outdated(self, rank: int) -> None:
        if self._keep.everything:
            return
        stored = [
            StoredShard(writer, step, path, size)
            for writer, step, path in self._directory.training_shards()
            if (size := _size(path)) is not None
        ]
        for path in self._keep.outdated(stored, rank):
            remove_shard(path)


def _size(path: Path) -> int | None:
    """A file's bytes; None if another process has deleted it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _lines(rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> Iterator[RolloutLine]:
    given = info.get("advantages")
    by_row = None if given is None else iter(given)
    for rollout in rollouts:
        advantages = None
        if by_row is not None:
            advantages = tuple(
                tuple(np.asarray(next(by_row), float).tolist()) for _ in rollout.rows
            )
        yield RolloutLine(rollout, info["phase"], info["step"], advantages, info.get("dataset"))


def write_set(
    directory: RunDirectory,
    phase: str,
    step: int,
    lines: Iterator[RolloutLine],
    *,
    dataset: str | None = None,
    rank: int = 0,
) -> list[Path]:
    """Write the rollouts of one generation or evaluation; returns their shards."""
    return write_shards(
        lambda part: directory.shard(phase, step, dataset, rank=rank, part=part), lines
    )


def read_lines(run_dir: str | Path, phase: str | None = None) -> Iterator[RolloutLine]:
    """All stored data about a run's rollouts, by step; of one phase or of all."""
    for name, _, path in RunDirectory(Path(run_dir)).shards():
        if phase in (None, name):
            yield from read_shard(path)


def read_rollouts(run_dir: str | Path, phase: str | None = None) -> Iterator[Rollout]:
    """The rollouts of a run as they were played; `phase` is "before", "train", "eval" or "after".

    A group's rollouts are adjacent; group numbers start again at each step. The last group of a
    process's shards may continue in the next process's.
    """
    return (line.rollout for line in read_lines(run_dir, phase))


def drop_rollouts_from(run_dir: Path, step: int) -> None:
    """Delete the shards that a run resumed at `step` will play again."""
    for phase, played, path in RunDirectory(run_dir).shards():
        again = {"train": played >= step, "eval": played > step, "after": True}
        if again.get(phase, False):
            remove_shard(path)
