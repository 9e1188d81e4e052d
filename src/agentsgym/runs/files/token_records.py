"""The trainer's numbers for the tokens of a sample of rollouts: a Parquet file per generation and
process, with a row for each step."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from agentsgym.runs.files.atomic import replacing
from agentsgym.runs.files.directory import RunDirectory
from agentsgym.runs.files.formats import TOKEN_RECORDS
from agentsgym.runs.files.parquet import named_damage, read_tables, writing
from agentsgym.types.records import StepNumbers, TokenRecord

_NUMBERS = pa.list_(pa.float64())
SCHEMA = pa.schema(
    [
        ("session_id", pa.string()),
        ("episode", pa.int64()),
        ("step", pa.int64()),
        ("logprobs", _NUMBERS),
        ("ratios", _NUMBERS),
        ("entropies", _NUMBERS),
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
            {
                "session_id": record.session_id,
                "episode": episode,
                "step": step,
                "logprobs": numbers.logprobs,
                "ratios": numbers.ratios,
                "entropies": numbers.entropies,
            }
            for record in records
            for (episode, step), numbers in record.steps.items()
        ]
        with replacing(path) as part, writing(part, SCHEMA, TOKEN_RECORDS) as write:
            write(pa.Table.from_pylist(rows, SCHEMA))


def read_token_records(path: Path) -> Iterator[TokenRecord]:
    """The records of one file. Raises DamagedFile if it has any other content, NewerFormat if a
    newer agentsgym wrote it."""
    sessions: dict[str, dict[tuple[int, int], StepNumbers]] = {}
    for table in read_tables(path, SCHEMA, TOKEN_RECORDS):
        with named_damage(path):
            for row in table.to_pylist():
                key = row.pop("episode"), row.pop("step")
                session = row.pop("session_id")
                sessions.setdefault(session, {})[key] = _numbers(session, *key, **row)
    return (TokenRecord(session, steps) for session, steps in sessions.items())


def _numbers(
    session: str | None,
    episode: int | None,
    step: int | None,
    logprobs: Sequence[float],
    ratios: Sequence[float],
    entropies: Sequence[float] | None,
) -> StepNumbers:
    if None in (session, episode, step, *logprobs, *ratios, *(entropies or ())):
        raise ValueError("a value is missing")
    return StepNumbers(
        tuple(logprobs), tuple(ratios), None if entropies is None else tuple(entropies)
    )


def drop_token_records_from(run_dir: Path, step: int) -> None:
    """Delete the records of generations that a run resumed at `step` will train on again."""
    for played, path in RunDirectory(run_dir).token_record_files():
        if played >= step:
            path.unlink()
