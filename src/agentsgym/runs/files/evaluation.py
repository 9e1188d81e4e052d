"""The directory of a saved evaluation: its rollouts, and evaluation.json."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentsgym.evaluation import Evaluation, Passes
from agentsgym.runs.files.atomic import DamagedFile, write_text
from agentsgym.runs.files.columns import StoredRollout
from agentsgym.runs.files.directory import RunDirectory
from agentsgym.runs.files.formats import EVALUATION
from agentsgym.runs.files.rollouts import read_file, write_rollouts
from agentsgym.runs.files.summary import read_record
from agentsgym.types import Rollout
from agentsgym.types.text import masked, plain

Status = Literal["running", "interrupted", "finished"]
PHASE = "eval"
_PART = re.compile(r"part-(\d+)")


class SavedFigures(BaseModel):
    """evaluation.json. `settings` says what was played and how; only with equal settings is an
    evaluation continued. `versions` are those of its last process, `seconds` its time in all of
    them. `figures` is None until it is finished; `passes` are pass@k and pass^k."""

    model_config = ConfigDict(extra="forbid")

    model: str
    status: Status = "running"
    settings: dict[str, Any]
    versions: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0
    figures: Evaluation | None = None
    passes: list[Passes] = Field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write the file; a reader sees either the old or the new one."""
        data = EVALUATION.stamped(plain(masked(self.model_dump())))
        write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def write_comparison(path: Path, data: Mapping[str, Any]) -> None:
    """Write a comparison of two evaluations, with the schema of an evaluation."""
    text = json.dumps(EVALUATION.stamped(plain(masked(dict(data)))), indent=2, allow_nan=False)
    write_text(path, text + "\n")


@dataclass(frozen=True, slots=True)
class EvaluationDirectory:
    """The files of one evaluation below `root`. `read_rollouts(root)` reads its rollouts too."""

    root: Path

    @property
    def file(self) -> Path:
        """Settings, status and figures."""
        return self.root / "evaluation.json"

    def read(self) -> SavedFigures | None:
        """The evaluation's file; None if there is none. Raises DamagedFile if it is no such file,
        NewerFormat if a newer agentsgym wrote it."""
        if not self.file.is_file():
            return None
        try:
            return SavedFigures.model_validate(
                EVALUATION.current(read_record(self.file), self.file)
            )
        except DamagedFile as error:
            raise DamagedFile(f"{self.file} is not an evaluation: {error}") from None
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise DamagedFile(
                f"{self.file} is not an evaluation: {where} {problem['msg']}"
            ) from None

    def rollouts(self) -> Iterator[Rollout]:
        """The stored rollouts."""
        for path in self._files():
            yield from (stored.rollout for stored in read_file(path))

    def write_part(self, rollouts: Sequence[Rollout]) -> None:
        """Store rollouts while an evaluation runs, in a file of their own."""
        numbers = [int(found[1]) for path in self._files() if (found := _PART.search(path.name))]
        name = f"part-{max(numbers, default=0) + 1:06d}"
        self._write(rollouts, name)

    def write_all(self, rollouts: Sequence[Rollout]) -> None:
        """Store the rollouts of a finished evaluation together, instead of its parts."""
        whole = self._write(rollouts)
        for path in self._files():
            if path != whole:
                path.unlink(missing_ok=True)

    def _write(self, rollouts: Sequence[Rollout], name: str | None = None) -> Path:
        path = RunDirectory(self.root).rollout_file(PHASE, 0, name)
        write_rollouts(path, (StoredRollout(one, PHASE, 0, dataset=name) for one in rollouts))
        return path

    def _files(self) -> list[Path]:
        files = RunDirectory(self.root).rollout_files()
        return [path for phase, _, path in files if phase == PHASE]
