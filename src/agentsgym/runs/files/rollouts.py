"""Every rollout of a run on disk: a Parquet file per generation or evaluation, and process; and
beside them what the trainer computed for the tokens of some."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from agentsgym.runs.files.columns import (
    SCHEMA,
    StoredRollout,
    list_of,
    required,
    rollouts_of,
    table_of,
)
from agentsgym.runs.files.directory import DamagedFile, RunDirectory, opened, replacing
from agentsgym.runs.files.records import KEY, VERSION, OtherFormat, check_version
from agentsgym.types import Rollout
from agentsgym.types.rows import StepNumbers, TokenRecord
from agentsgym.types.settings import Count, Section

_ROW_GROUP = 1 << 19
"""Tokens in a row group: so much is read at once."""


class KeepRollouts(Section):
    """These settings choose the training rollouts that stay on disk. By default all stay.
    Evaluations, the games of a warm start and the newest generation are always kept."""

    last: Count | None = Field(default=None, description="Number of newest generations to keep.")
    every: Count | None = Field(
        default=None, description="Also keep generations whose step is a multiple of this number."
    )

    def outdated(self, files: Sequence[tuple[int, Path]]) -> list[Path]:
        """Those of all files of a run's generations that are to be deleted; a file comes with the
        number of optimizer steps before it."""
        newest = sorted({step for step, _ in files}, reverse=True)
        last = newest[: max(1, self.last or 0)]
        return [
            path
            for step, path in files
            if step not in last and not (self.every and step % self.every == 0)
        ]


_KEEP_ALL = KeepRollouts()


class RolloutWriter:
    """A trainer's rollout sink: writes rollouts to the run's files, each process to its own, and
    deletes those of generations that `keep` does not name. `agent_tokens` counts the tokens that
    this process sampled in training."""

    def __init__(self, run_dir: Path, keep: KeepRollouts = _KEEP_ALL) -> None:
        self._directory = RunDirectory(run_dir)
        self._keep = keep
        self.agent_tokens = 0

    def __call__(self, rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> None:
        """Store rollouts; `info` has `phase`, `step`, `advantages` by row or None, the process's
        `rank` if there are several, and the `dataset`'s name if there are several evaluation sets.
        """
        if not rollouts:  # an evaluation may have fewer groups than there are processes
            return
        phase, step, rank = info["phase"], info["step"], info.get("rank", 0)
        path = self._directory.rollout_file(phase, step, info.get("dataset"), rank=rank)
        write_rollouts(path, _stored(rollouts, info))
        if phase == "train":
            self.agent_tokens += sum(rollout.agent_tokens for rollout in rollouts)
            if self._keep != _KEEP_ALL:
                played = self._directory.rollout_files()
                files = [(step, path) for phase, step, path in played if phase == "train"]
                for old in self._keep.outdated(files):
                    old.unlink(missing_ok=True)


def _stored(rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> Iterator[StoredRollout]:
    by_row = None if info.get("advantages") is None else iter(info["advantages"])
    for rollout in rollouts:
        advantages = None
        if by_row is not None:
            advantages = tuple(np.asarray(next(by_row), np.float64) for _ in rollout.rows)
        yield StoredRollout(rollout, info["phase"], info["step"], advantages, info.get("dataset"))


def write_rollouts(path: Path, rollouts: Iterable[StoredRollout]) -> None:
    """Write a file of rollouts, or nothing at all."""
    with replacing(path) as part, writing(part, SCHEMA) as write:
        for batch in _batches(rollouts):
            write(table_of(batch))


def _batches(rollouts: Iterable[StoredRollout]) -> Iterator[list[StoredRollout]]:
    batch: list[StoredRollout] = []
    tokens = 0
    for one in rollouts:
        batch.append(one)
        tokens += len(one.rollout.token_ids)
        if tokens >= _ROW_GROUP:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def read_file(path: Path) -> Iterator[StoredRollout]:
    """The rollouts of one file. Raises DamagedFile if it has any other content, OtherFormat if a
    newer agentsgym wrote it."""
    for table in read_tables(path, SCHEMA):
        with reading(path):
            read = list(rollouts_of(table))
        yield from read


def read_stored(run_dir: str | Path, phase: str | None = None) -> Iterator[StoredRollout]:
    """All stored data about a run's rollouts, by step; of one phase or of all."""
    for name, _, path in RunDirectory(Path(run_dir)).rollout_files():
        if phase in (None, name):
            yield from read_file(path)


def read_rollouts(run_dir: str | Path, phase: str | None = None) -> Iterator[Rollout]:
    """The rollouts of a run as they were played; `phase` is "before", "train", "eval" or "after". A
    group's rollouts are adjacent; group numbers start again at each step. The last group of a
    process's file may continue in the next process's."""
    return (stored.rollout for stored in read_stored(run_dir, phase))


def drop_rollouts_from(run_dir: Path, step: int) -> None:
    """Delete the files that a run resumed at `step` will play again."""
    for phase, played, path in RunDirectory(run_dir).rollout_files():
        again = {"train": played >= step, "eval": played > step, "after": True}
        if again.get(phase, False):
            path.unlink(missing_ok=True)


# -- the trainer's numbers for the tokens of some rollouts, a row for each step ------------------

_TOKEN_SCHEMA = pa.schema(
    [
        required("session_id", pa.string()),
        required("episode", pa.int64()),
        required("step", pa.int64()),
        required("logprobs", list_of(pa.float64())),
        required("ratios", list_of(pa.float64())),
        pa.field("entropies", list_of(pa.float64())),
    ]
)


class TokenRecordWriter:
    """A trainer's token sink: writes its records to the run."""

    def __init__(self, run_dir: Path) -> None:
        self._directory = RunDirectory(run_dir)

    def __call__(self, records: Sequence[TokenRecord], info: Mapping[str, Any]) -> None:
        """Store the records of the generation that began at `step`."""
        path = self._directory.token_record(info["step"], rank=info.get("rank", 0))
        rows = [
            {"session_id": record.session_id, "episode": episode, "step": step, **asdict(numbers)}
            for record in records
            for (episode, step), numbers in record.steps.items()
        ]
        with replacing(path) as part, writing(part, _TOKEN_SCHEMA) as write:
            write(pa.Table.from_pylist(rows, _TOKEN_SCHEMA))


def read_token_records(path: Path) -> Iterator[TokenRecord]:
    """The records of one file. Raises DamagedFile if it has any other content, OtherFormat if a
    newer agentsgym wrote it."""
    sessions: dict[str, dict[tuple[int, int], StepNumbers]] = {}
    for table in read_tables(path, _TOKEN_SCHEMA):
        for row in table.to_pylist():
            session, key = row.pop("session_id"), (row.pop("episode"), row.pop("step"))
            numbers: Any = {k: None if v is None else tuple(v) for k, v in row.items()}
            sessions.setdefault(session, {})[key] = StepNumbers(**numbers)
    return (TokenRecord(session, steps) for session, steps in sessions.items())


def drop_token_records_from(run_dir: Path, step: int) -> None:
    """Delete the records of generations that a run resumed at `step` will train on again."""
    for played, path in RunDirectory(run_dir).token_record_files():
        if played >= step:
            path.unlink()


# -- Parquet files of known columns, of which nothing else is trusted ------------------------------


_MOST_BYTES = 1 << 31
_MOST_VALUES = 1 << 28
"""Limits for one row group as it says of itself: a small file may decompress to any size."""
_VERSION = f"agentsgym.{KEY}".encode()
_UNREADABLE = (
    pa.ArrowException, OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError,
)  # fmt: skip


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Writes tables of a schema to a file, each as a row group."""
    schema = schema.with_metadata({_VERSION: str(VERSION)})
    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        yield lambda table: writer.write_table(table.cast(schema))


def read_tables(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """The row groups of a file. Raises DamagedFile if it can't be read or has other columns,
    OtherFormat if a newer agentsgym wrote it, FileNotFoundError if there is none."""
    with opened(path) as stored, reading(path):
        file = pq.ParquetFile(stored)
        _check(file, schema, path)
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, use_threads=False).select(schema.names)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Makes every error of reading a file's contents a DamagedFile that names the file."""
    try:
        yield
    except OtherFormat:
        raise
    except _UNREADABLE as error:
        first_line = str(error).partition("\n")[0]
        raise DamagedFile(f"{path} is damaged: {first_line}") from None


def _check(file: pq.ParquetFile, schema: pa.Schema, path: Path) -> None:
    known = (file.schema_arrow.metadata or {}).get(_VERSION, str(VERSION).encode())
    check_version(int(known), path)
    for field in schema:
        number = file.schema_arrow.get_field_index(field.name)
        if number < 0:
            raise DamagedFile(f"it has no column {field.name}")
        if not (stored := file.schema_arrow.field(number)).equals(field):
            raise DamagedFile(f"its column {field.name} is {stored.type}")
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        values = max((group.column(k).num_values for k in range(group.num_columns)), default=0)
        if group.total_byte_size > _MOST_BYTES or values > _MOST_VALUES:
            raise DamagedFile(f"its part {number} is too large")
