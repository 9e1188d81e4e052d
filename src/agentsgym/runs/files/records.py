"""The JSON files of a run: summary.json, evaluation.json, and metrics.jsonl with a line for each
logged optimizer step or evaluation. Every record has the version of its format as `schema`."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentsgym.evaluation import Evaluation, Passes
from agentsgym.evaluation.effects import Effect
from agentsgym.runs.files.directory import DamagedFile, naming, overwrite, read_bytes, write_text
from agentsgym.types.text import masked, plain, short_repr

KEY, VERSION = "schema", 2


class OtherFormat(RuntimeError):
    """A file has another version than this package reads; the message says what to do."""


def check_version(version: object, source: str | Path) -> None:
    """Raise OtherFormat for another version of a record in `source` than this package writes,
    DamagedFile for what is no version."""
    if type(version) is not int or version < 1:
        raise DamagedFile(f"{KEY} is {short_repr(version)}")
    if version != VERSION:
        known = f"schema {version}; this one reads {VERSION}"
        if version > VERSION:
            who, advice = "a newer", "upgrade with `pip install --upgrade agentsgym`"
        else:
            who, advice = "an older", "read it with that one"
        raise OtherFormat(f"{source} was written by {who} agentsgym ({known}): {advice}")


def write_record(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file of one record, without secrets; a reader sees either the old or the new
    one."""
    record = {KEY: VERSION, **plain(masked(dict(data)))}
    write_text(path, _text(record))


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


class JsonRecord(BaseModel):
    """A JSON file of one record, which says in `status` how what it describes has ended."""

    status: str
    model_config = ConfigDict(extra="forbid")

    def write(self, path: Path) -> None:
        """Write the file; a reader sees either the old or the new one."""
        write_record(path, self.model_dump())

    def write_end(self, path: Path) -> None:
        """Write the file at the end of a run, also where the disk is full: then over the old
        content, or only the status, if there is no room for more."""
        try:
            self.write(path)
        except OSError:
            old = json.loads(read_bytes(path))
            for changes in (plain(masked(self.model_dump())), {"status": plain(self.status)}):
                with suppress(OSError):
                    overwrite(path, _text({**old, **changes}))
                    return
            raise

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in a file. Raises DamagedFile if it is none, OtherFormat if a newer agentsgym
        wrote it."""
        try:
            data = json.loads(read_bytes(path))
            if not isinstance(data, dict):
                raise DamagedFile(f"it holds a {type(data).__name__}, not an object")
            check_version(data.pop(KEY, VERSION), path)
            return cls.model_validate(data)
        except ValidationError as error:
            problem = error.errors()[0]
            reason = f"{'.'.join(map(str, problem['loc']))} {problem['msg']}"
        except (ValueError, RecursionError) as error:
            reason = str(error)
        raise DamagedFile(f"{path} is damaged: {reason}")


class Summary(JsonRecord):
    """summary.json: what a run did, and its results; docs/run-directory.md describes the keys."""

    name: str
    status: Literal["running", "interrupted", "failed", "finished"] = "running"
    stop_reason: str | None = None
    error: str | None = None
    seed: int
    env: str
    env_config: dict[str, Any]
    model: str
    model_figures: dict[str, Any] = Field(default_factory=dict)
    before: Evaluation | None = None
    warm_started: Evaluation | None = None
    after: Evaluation | None = None
    references: dict[str, float] = Field(default_factory=dict)
    players: dict[str, float] = Field(default_factory=dict)
    findings: list[dict[str, Any]] = Field(default_factory=list)
    steps: int = 0
    agent_tokens: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = Field(default_factory=dict)
    threads: int | None = None
    data: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)

    def add_time(self, phase: str, seconds: float) -> None:
        """Add time to a phase and to the total."""
        self.phases[phase] = round(self.phases.get(phase, 0.0) + seconds, 3)
        self.seconds = round(sum(self.phases.values()), 3)


def read_summary(path: Path) -> Summary:
    """The summary in a file. Raises the errors of `JsonRecord.read`."""
    return Summary.read(path)


class SavedFigures(JsonRecord):
    """evaluation.json. `settings` says what was played and how; only with equal settings is an
    evaluation continued. `figures` is None until it is finished; `passes` are pass@k and pass^k."""

    model: str
    status: Literal["running", "interrupted", "finished"] = "running"
    settings: dict[str, Any]
    versions: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0
    figures: Evaluation | None = None
    passes: list[Passes] = Field(default_factory=list)


class SavedEffects(JsonRecord):
    """effects.json: the measured effects of a generation's actions, beside the branches that were
    played for them."""

    status: Literal["finished"] = "finished"
    effects: list[Effect]


# -- metrics.jsonl ---------------------------------------------------------------------------------


class MetricsFile:
    """Appends to a run's `metrics.jsonl`; when `append` returns, the operating system has the
    line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, phase: str, step: int, values: Mapping[str, Any]) -> None:
        """Write one line: its version, `step`, `phase`, and the values; infinite numbers and NaN
        become null."""
        line = _line({"step": step, "phase": phase, **plain(values)}).encode()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self._path), self._path.open("ab+") as file:
            if file.seek(0, 2):
                file.seek(-1, 2)
                if file.read(1) != b"\n":  # a failed write left an incomplete line
                    line = b"\n" + line
            file.write(line)

    def drop_after(self, step: int) -> None:
        """Drop the lines after `step`, which a resumed run will write again."""
        if self._path.exists():
            kept = [line for line in read_metrics(self._path) if line["step"] <= step]
            write_text(self._path, "".join(map(_line, kept)))


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps({KEY: VERSION, **values}, allow_nan=False) + "\n"


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file, without their version; a damaged line is ignored.

    Raises OtherFormat if a newer agentsgym wrote it.
    """
    stored = b""
    with suppress(FileNotFoundError):
        stored = read_bytes(path)
    for text in stored.decode(errors="replace").split("\n"):
        try:
            line = plain(json.loads(text))
            if isinstance(line, dict) and isinstance(line.get("step"), int) and "phase" in line:
                check_version(line.pop(KEY, VERSION), path)
                yield line
        except (ValueError, RecursionError):
            continue
