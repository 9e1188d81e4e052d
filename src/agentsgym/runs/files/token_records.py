"""The trainer's numbers for the tokens of a sample of rollouts: gzipped JSON lines, one file per
generation and process."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentsgym.runs.files.atomic import DamagedFile, replacing
from agentsgym.runs.files.directory import RunDirectory
from agentsgym.runs.files.encoding import finite
from agentsgym.runs.files.formats import TOKEN_RECORDS, NewerFormat
from agentsgym.types.records import Numbers, StepNumbers, TokenRecord

_MOST_BYTES = 1 << 26


class TokenRecordWriter:
    """A trainer's token sink: writes its records to the run."""

    def __init__(self, run_dir: Path) -> None:
        self._directory = RunDirectory(run_dir)

    def __call__(self, records: Sequence[TokenRecord], info: Mapping[str, Any]) -> None:
        """Store the records of the generation that began at `step`."""
        path = self._directory.token_record(info["step"], rank=info.get("rank", 0))
        with replacing(path) as part, gzip.open(part, "wb", compresslevel=1) as file:
            for record in records:
                text = json.dumps(TOKEN_RECORDS.stamped(_to_json(record)), allow_nan=False)
                file.write(text.encode() + b"\n")


def read_token_records(path: Path) -> Iterator[TokenRecord]:
    """The records of one file. Raises DamagedFile if it has any other content, NewerFormat if a
    newer agentsgym wrote it."""
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline(_MOST_BYTES):
                yield _from_json(TOKEN_RECORDS.current(json.loads(line), path))
    except NewerFormat:
        raise
    except KeyError as error:
        raise DamagedFile(f"{path} is damaged: {error} is missing") from None
    except (
        OSError, EOFError, zlib.error, ValueError, TypeError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        raise DamagedFile(f"{path} is damaged: {error}") from None


def drop_token_records_from(run_dir: Path, step: int) -> None:
    """Delete the records of generations that a run resumed at `step` will train on again."""
    for played, path in RunDirectory(run_dir).token_record_files():
        if played >= step:
            path.unlink()


def _to_json(record: TokenRecord) -> dict[str, Any]:
    return {
        "session_id": record.session_id,
        "steps": [
            {
                "episode": episode,
                "step": step,
                "logprobs": _listed(numbers.logprobs),
                "ratios": _listed(numbers.ratios),
                "entropies": None if numbers.entropies is None else _listed(numbers.entropies),
            }
            for (episode, step), numbers in record.steps.items()
        ],
    }


def _listed(values: Numbers) -> list[float | None]:
    return [finite(value) for value in values]


def _from_json(data: Mapping[str, Any]) -> TokenRecord:
    session = data["session_id"]
    if not isinstance(session, str):
        raise ValueError("session_id is not a text")
    steps = {
        (int(step["episode"]), int(step["step"])): StepNumbers(
            _numbers(step["logprobs"]),
            _numbers(step["ratios"]),
            None if step["entropies"] is None else _numbers(step["entropies"]),
        )
        for step in data["steps"]
    }
    return TokenRecord(session, steps)


def _numbers(values: Sequence[float | None]) -> Numbers:
    return tuple(float("nan") if value is None else float(value) for value in values)
