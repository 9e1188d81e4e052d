"""The files of a run or an evaluation, as the viewer reads them."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.report.viewer.pieces import Pieces, find_tokenizer, load_pieces
from agentsgym.report.viewer.rollout_set import RolloutSet, rollout_sets
from agentsgym.runs.files import RunDirectory, read_metrics, read_summary
from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.evaluation import EvaluationDirectory
from agentsgym.runs.files.formats import NewerFormat
from agentsgym.runs.sources import load_yaml
from agentsgym.runs.trust import is_own
from agentsgym.types import is_under

_UNREADABLE = (DamagedFile, NewerFormat, OSError)
_MOST_CONFIG = 200_000

Json = dict[str, Any]


@dataclass
class Source:
    """One side of the page: the directory `root`, which may be another person's.

    Reading it follows no link that leaves the directory, unless it is the user's own or `trust`
    says so.
    `tokenizer` is a file or model directory that the user named for the texts of tokens.
    """

    root: Path
    trust: bool = False
    tokenizer: Path | None = None
    _pieces: Pieces | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise ConfigError(f"there is no directory {self.root}")
        if not self.directory.is_run() and not any(self.sets()):
            raise ConfigError(
                f"{self.root} is neither a run nor an evaluation: it has no config.yaml and no "
                "rollouts/"
            )

    @property
    def directory(self) -> RunDirectory:
        """The paths of its files."""
        return RunDirectory(self.root)

    @property
    def name(self) -> str:
        """The directory's name, of a saved evaluation after its model."""
        name = self.root.resolve().name
        with suppress(DamagedFile, NewerFormat, OSError):
            file = EvaluationDirectory(self.root).read()
            return name if file is None else f"{file.model} ({name})"
        return name

    def sets(self) -> list[RolloutSet]:
        """Its generations and evaluations, in the order of the run."""
        return rollout_sets(self.directory, self._is_inside)

    def pieces(self) -> Pieces:
        """The texts of its tokens."""
        if self._pieces is None:
            path = self.tokenizer or find_tokenizer(self.directory, self._is_inside)
            self._pieces = load_pieces(path, self.tokenizer is not None)
        return self._pieces

    @property
    def estimator(self) -> str | None:
        """The advantage estimator that the configuration names."""
        try:
            train = load_yaml(self._config([]), str(self.directory.config)).get("train")
        except ConfigError:
            return None
        found = train.get("advantage_estimator") if isinstance(train, dict) else None
        return found if isinstance(found, str) else None

    def overview(self) -> Json:
        """Everything but the rollouts: summary, configuration and metrics; `problems` has a
        sentence for each file that cannot be read."""
        problems: list[str] = []
        return {
            "name": self.name,
            "path": str(self.root),
            "summary": self._summary(problems),
            "evaluation": self._evaluation(problems),
            "config": self._config(problems),
            "metrics": self._metrics(problems),
            "problems": problems,
        }

    def _summary(self, problems: list[str]) -> Json | None:
        path = self.directory.summary
        if not self._readable(path, problems):
            return None
        try:
            return read_summary(path).model_dump()
        except _UNREADABLE as error:
            problems.append(str(error))
            return None

    def _evaluation(self, problems: list[str]) -> Json | None:
        """The file of a saved evaluation."""
        found = EvaluationDirectory(self.root)
        if not self._readable(found.file, problems):
            return None
        try:
            saved = found.read()
            return None if saved is None else saved.model_dump()
        except _UNREADABLE as error:
            problems.append(str(error))
            return None

    def _config(self, problems: list[str]) -> str:
        path = self.directory.config
        if not self._readable(path, problems):
            return ""
        return path.read_bytes()[:_MOST_CONFIG].decode(errors="replace")

    def _metrics(self, problems: list[str]) -> Json:
        path = self.directory.metrics
        if not self._readable(path, problems):
            return columns([])
        try:
            return columns(list(read_metrics(path)))
        except (NewerFormat, OSError) as error:
            problems.append(str(error))
            return columns([])

    def _readable(self, path: Path, problems: list[str]) -> bool:
        if not path.is_file():
            return False
        if not self._is_inside(path):
            problems.append(f"{path} is a link to {path.resolve()}, outside of {self.root}")
            return False
        return True

    def _is_inside(self, path: Path) -> bool:
        inside = is_under(path.resolve(), [self.root.resolve()])
        return inside or self.trust or is_own(self.root)


def directories(root: Path) -> list[Path]:
    """A run or an evaluation, or both sides of a saved comparison."""
    sides = [root / "model", root / "vs"]
    return (
        sides if (root / "comparison.json").is_file() and all(s.is_dir() for s in sides) else [root]
    )


def columns(lines: list[Mapping[str, Any]]) -> Json:
    """Lines of metrics by column: `phase`, `step`, and under `values` each name's numbers, None
    where a line lacks it or has no finite number."""
    names = dict.fromkeys(name for line in lines for name in line if name not in ("phase", "step"))
    return {
        "phase": [str(line["phase"]) for line in lines],
        "step": [line["step"] for line in lines],
        "values": {name: [_number(line.get(name)) for line in lines] for name in names},
    }


def _number(value: Any) -> float | None:
    if type(value) not in (int, float) or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
