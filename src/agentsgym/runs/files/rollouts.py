"""Every rollout of a run on disk: a Parquet file per generation or evaluation, and process."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentsgym.runs.files.atomic import replacing
from agentsgym.runs.files.columns import SCHEMA, StoredRollout, rollouts_of, table_of
from agentsgym.runs.files.directory import RunDirectory
from agentsgym.runs.files.formats import ROLLOUTS
from agentsgym.runs.files.parquet import named_damage, read_tables, writing
from agentsgym.runs.files.retention import KeepRollouts, RolloutFile
from agentsgym.types import Rollout

_ROW_GROUP = 1 << 19
"""Tokens in a row group: so much is read at once."""


_KEEP_ALL = KeepRollouts()


class RolloutWriter:
    """A trainer's rollout sink: writes its rollouts to the run's files, and deletes those of
    generations that `keep` does not name.

    A file appears only when it is complete. Each of several processes writes and deletes files of
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
        path = self._directory.rollout_file(phase, step, info.get("dataset"), rank=rank)
        write_rollouts(path, _stored(rollouts, info))
        if phase == "train":
            self.agent_tokens += sum(rollout.agent_tokens for rollout in rollouts)
            self._delete_outdated(rank)

    def _delete_outdated(self, rank: int) -> None:
        if self._keep.everything:
            return
        stored = [
            RolloutFile(writer, step, path, size)
            for writer, step, path in self._directory.training_files()
            if (size := _size(path)) is not None
        ]
        for path in self._keep.outdated(stored, rank):
            path.unlink(missing_ok=True)


def _size(path: Path) -> int | None:
    """A file's bytes; None if another process has deleted it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _stored(rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> Iterator[StoredRollout]:
    by_row = None if info.get("advantages") is None else iter(info["advantages"])
    for rollout in rollouts:
        advantages = None
        if by_row is not None:
            advantages = tuple(np.asarray(next(by_row), np.float64) for _ in rollout.rows)
        yield StoredRollout(rollout, info["phase"], info["step"], advantages, info.get("dataset"))


def write_rollouts(path: Path, rollouts: Iterable[StoredRollout]) -> None:
    """Write a file of rollouts, or nothing at all."""
    with replacing(path) as part, writing(part, SCHEMA, ROLLOUTS) as write:
        for batch in _batches(rollouts):
            write(table_of(batch))


def _batches(rollouts: Iterable[StoredRollout]) -> Iterator[list[StoredRollout]]:
    batch: list[StoredRollout] = []
    tokens = 0
    for one in rollouts:
        batch.append(one)
        tokens += sum(len(row.token_ids) for row in one.rollout.rows)
        if tokens >= _ROW_GROUP:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def read_file(path: Path, group: int | None = None) -> Iterator[StoredRollout]:
    """The rollouts of one file, or those of one group in it. Raises DamagedFile if it has any other
    content, NewerFormat if a newer agentsgym wrote it."""
    for table in read_tables(path, SCHEMA, ROLLOUTS, group):
        with named_damage(path):
            read = list(rollouts_of(table))
        yield from (one for one in read if group in (None, one.rollout.group))


def read_stored(run_dir: str | Path, phase: str | None = None) -> Iterator[StoredRollout]:
    """All stored data about a run's rollouts, by step; of one phase or of all."""
    for name, _, path in RunDirectory(Path(run_dir)).rollout_files():
        if phase in (None, name):
            yield from read_file(path)


def read_rollouts(run_dir: str | Path, phase: str | None = None) -> Iterator[Rollout]:
    """The rollouts of a run as they were played; `phase` is "before", "train", "eval" or "after".

    A group's rollouts are adjacent; group numbers start again at each step. The last group of a
    process's file may continue in the next process's.
    """
    return (stored.rollout for stored in read_stored(run_dir, phase))


def drop_rollouts_from(run_dir: Path, step: int) -> None:
    """Delete the files that a run resumed at `step` will play again."""
    for phase, played, path in RunDirectory(run_dir).rollout_files():
        again = {"train": played >= step, "eval": played > step, "after": True}
        if again.get(phase, False):
            path.unlink(missing_ok=True)
