"""The directory of a saved evaluation: its rollouts, and evaluation.json."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsgym.runs.files.columns import StoredRollout
from agentsgym.runs.files.directory import RunDirectory
from agentsgym.runs.files.records import SavedFigures
from agentsgym.runs.files.rollouts import read_file, write_rollouts
from agentsgym.types import Rollout

_PHASE = "eval"
_PART = re.compile(r"part-(\d+)")


@dataclass(frozen=True, slots=True)
class EvaluationDirectory:
    """The files of one evaluation below `root`. `read_rollouts(root)` reads its rollouts too."""

    root: Path

    @property
    def file(self) -> Path:
        """Settings, status and figures."""
        return self.root / "evaluation.json"

    def read(self) -> SavedFigures | None:
        """The evaluation's file; None if there is none. Raises the errors of `JsonRecord.read`."""
        return SavedFigures.read(self.file) if self.file.is_file() else None

    def rollouts(self) -> Iterator[Rollout]:
        """The stored rollouts."""
        for path in self._files():
            yield from (stored.rollout for stored in read_file(path))

    def write_part(self, rollouts: Sequence[Rollout]) -> None:
        """Store rollouts while an evaluation runs, in a file of their own."""
        numbers = [int(found[1]) for path in self._files() if (found := _PART.search(path.name))]
        self._write(rollouts, f"part-{max(numbers, default=0) + 1:06d}")

    def write_all(self, rollouts: Sequence[Rollout]) -> None:
        """Store the rollouts of a finished evaluation together, instead of its parts."""
        whole = self._write(rollouts)
        for path in self._files():
            if path != whole:
                path.unlink(missing_ok=True)

    def _write(self, rollouts: Sequence[Rollout], name: str | None = None) -> Path:
        path = RunDirectory(self.root).rollout_file(_PHASE, 0, name)
        write_rollouts(path, (StoredRollout(one, _PHASE, 0, dataset=name) for one in rollouts))
        return path

    def _files(self) -> list[Path]:
        files = RunDirectory(self.root).rollout_files()
        return [path for phase, _, path in files if phase == _PHASE]
