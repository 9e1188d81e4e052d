"""summary.json: what a run did, and its results."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentsgym.evaluation import Evaluation
from agentsgym.runs.files.atomic import DamagedFile, write_text
from agentsgym.runs.files.formats import SUMMARY
from agentsgym.types.text import masked, plain

Status = Literal["running", "interrupted", "failed", "finished"]


class Summary(BaseModel):
    """A run's summary. `warm_started` are the figures after the warm start of a pretrained model
    and before RL. `references` are the mean scores of other players on the held-out tasks, by name
    (see `KnownPlay.other_references`). `seconds` is the sum of `phases` (seconds each, over all
    resumes); `error` is the error that ended a failed run."""

    model_config = ConfigDict(extra="forbid")

    name: str
    status: Status = "running"
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
    steps: int = 0
    agent_tokens: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = Field(default_factory=dict)
    threads: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)

    def add_time(self, phase: str, seconds: float) -> None:
        """Add time to a phase and to the total."""
        self.phases[phase] = round(self.phases.get(phase, 0.0) + seconds, 3)
        self.seconds = round(sum(self.phases.values()), 3)

    def write(self, path: Path) -> None:
        """Write the file; a reader sees either the old or the new one."""
        data = SUMMARY.stamped(plain(masked(self.model_dump())))
        write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def read_summary(path: Path) -> Summary:
    """The summary in a file. Raises DamagedFile if it is not a summary,
    NewerFormat if a newer agentsgym wrote it."""
    try:
        return Summary.model_validate(SUMMARY.current(read_record(path), path))
    except DamagedFile as error:
        raise DamagedFile(f"{path} is not a summary: {error}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise DamagedFile(f"{path} is not a summary: {where} {problem['msg']}") from None


def check_version(path: Path) -> None:
    """Raise NewerFormat if a newer agentsgym wrote a summary. A missing or damaged summary is
    ignored here; reading it reports the problem."""
    with suppress(FileNotFoundError, DamagedFile):
        SUMMARY.check(read_record(path), path)


def read_record(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises DamagedFile if the file has another content."""
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DamagedFile(str(error)) from None
    if not isinstance(record, dict):
        raise DamagedFile(f"it holds a {type(record).__name__}, not an object")
    return record
