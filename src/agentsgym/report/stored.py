"""The files of a run or an evaluation, as reports read them; they may be another person's."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from agentsgym.envs import ConfigError
from agentsgym.evaluation.effects import Effect
from agentsgym.report.pieces import Pieces, find_tokenizer, load_pieces
from agentsgym.runs.files import (
    RunDirectory,
    StoredRollout,
    read_file,
    read_metrics,
    read_summary,
    read_token_records,
)
from agentsgym.runs.files.directory import DamagedFile, dataset_of, read_bytes
from agentsgym.runs.files.records import OtherFormat, SavedEffects, SavedFigures
from agentsgym.runs.sources import load_yaml
from agentsgym.runs.trust import check_links
from agentsgym.training.settings import TrainSettings
from agentsgym.types import Rollout
from agentsgym.types.foreign import number
from agentsgym.types.rows import TokenRecord

_UNREADABLE = (DamagedFile, OtherFormat, OSError)
_MOST_CONFIG = 200_000

Json = dict[str, Any]
Effects = Mapping[tuple[str, int, int], Effect]
T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class RolloutSet:
    """The rollouts of one generation or evaluation, the unit in which reports read: the files of
    all processes for one `phase`, optimizer `step` and evaluation `dataset`, and the `records` of
    the trainer's numbers, and of a generation the `effects` that were measured last."""

    phase: str
    step: int
    dataset: str | None
    paths: tuple[Path, ...]
    records: tuple[Path, ...] = ()
    effects: tuple[Path, ...] = ()

    @property
    def id(self) -> str:
        """A name of letters, digits and hyphens, which means nothing to HTML or in an address."""
        dataset = "" if self.dataset is None else f"-{self.dataset.encode().hex()}"
        return f"{self.phase}-{self.step}{dataset}"

    def read(self) -> "Contents":
        """Read everything that can be read."""
        problems: list[str] = []
        lines = _read_all(self.paths, read_file, problems)
        records = _read_all(self.records, read_token_records, problems)
        effects = _read_all(self.effects, lambda path: SavedEffects.read(path).effects, problems)
        order = {group: n for n, group in enumerate(dict.fromkeys(map(_group, lines)))}
        return Contents(
            self,
            sorted(lines, key=lambda line: order[_group(line)]),
            {record.session_id: record for record in records},
            problems[-1] if problems else None,
            {(one.session_id, one.episode, one.step): one for one in effects},
        )


@dataclass(frozen=True)
class Contents:
    """What a set `of` rollouts contains: its rollouts, group by group; the trainer's numbers by
    session; what could not be read, in a sentence; and the measured effects by session, episode
    and step."""

    of: RolloutSet
    lines: list[StoredRollout]
    records: Mapping[str, TokenRecord]
    problem: str | None
    effects: Effects = field(default_factory=dict)

    @cached_property
    def live(self) -> list[Rollout]:
        """The rollouts that did not fail."""
        return [line.rollout for line in self.lines if not line.rollout.failed]


def _read_all(
    paths: Iterable[Path], read: Callable[[Path], Iterable[T]], problems: list[str]
) -> list[T]:
    """The contents of all files, of a damaged one up to the damage."""
    records: list[T] = []
    for path in paths:
        try:
            records.extend(read(path))
        except _UNREADABLE as error:
            problems.append(str(error))
    return records


def _group(line: StoredRollout) -> int:
    return line.rollout.group


def groups(lines: Iterable[StoredRollout]) -> list[list[StoredRollout]]:
    """The groups of a set's lines, which are adjacent."""
    return [list(members) for _, members in groupby(lines, _group)]


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most `count` of the values, evenly spaced, with the first and the last."""
    if len(values) <= count:
        return list(values)
    if count <= 1:
        return list(values[:count])
    places = {round(n * (len(values) - 1) / (count - 1)) for n in range(count)}
    return [values[place] for place in sorted(places)]


@dataclass
class Source:
    """The directory `root`, which may be another person's: one with a link that leaves it is
    refused, unless `trust` says otherwise.

    `tokenizer` is a file or model directory that the user named for the texts of tokens.
    """

    root: Path
    trust: bool = False
    tokenizer: Path | None = None

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise ConfigError(f"there is no directory {self.root}")
        if not self.trust:
            check_links(self.root)
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
        with suppress(*_UNREADABLE):
            return f"{SavedFigures.read(self.directory.evaluation).model} ({name})"
        return name

    def sets(self) -> list[RolloutSet]:
        """Its generations and evaluations, in the order of the run."""
        files: dict[tuple[str, int, str | None], list[Path]] = {}
        for phase, step, path in self.directory.rollout_files():
            files.setdefault((phase, step, dataset_of(path)), []).append(path)
        records: dict[tuple[str, int], list[Path]] = {}
        for step, path in self.directory.token_record_files():
            records.setdefault(("train", step), []).append(path)
        return [
            RolloutSet(*key, tuple(paths), tuple(records.get(key[:2], ())), self._effects(*key[:2]))
            for key, paths in files.items()
        ]

    def _effects(self, phase: str, step: int) -> tuple[Path, ...]:
        return tuple(self.directory.effects(step)[:1]) if phase == "train" else ()

    @cached_property
    def pieces(self) -> Pieces:
        """The texts of its tokens."""
        if self.tokenizer is not None:
            return load_pieces(self.tokenizer, required=True)
        return load_pieces(find_tokenizer(self.directory, self.settings))

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Its configuration; empty if it has none that can be read."""
        try:
            text = self._config([])
            return load_yaml(text, str(self.directory.config)) if text else {}
        except ConfigError:
            return {}

    @property
    def estimator(self) -> str | None:
        """The advantage estimator that the run was trained with; None for an evaluation."""
        train = self.settings.get("train")
        if not isinstance(train, dict):
            return None
        default = TrainSettings.model_fields["advantage_estimator"].default
        return str(train.get("advantage_estimator", default))

    def overview(self) -> Json:
        """Everything but the rollouts: summary, configuration and metrics; `problems` has a
        sentence for each file that cannot be read."""
        problems: list[str] = []
        files = self.directory
        summary = self._read(files.summary, read_summary, None, problems)
        lines = self._read(files.metrics, lambda path: list(read_metrics(path)), [], problems)
        if summary is not None:  # of a killed run it is as old as the last phase
            summary.steps = max([summary.steps, *(line["step"] for line in lines)])
        return {
            "name": self.name,
            "path": str(self.root),
            "summary": summary and summary.model_dump(),
            "evaluation": self._read(
                files.evaluation, lambda path: SavedFigures.read(path).model_dump(), None, problems
            ),
            "config": self._config(problems),
            "estimator": self.estimator,
            "metrics": columns(lines),
            "problems": problems,
        }

    def _config(self, problems: list[str]) -> str:
        def read(path: Path) -> str:
            return read_bytes(path, _MOST_CONFIG).decode(errors="replace")

        return self._read(self.directory.config, read, "", problems)

    def _read(self, path: Path, read: Callable[[Path], T], absent: A, problems: list[str]) -> T | A:
        """What a file contains, or `absent`."""
        try:
            return read(path) if path.is_symlink() or path.exists() else absent
        except _UNREADABLE as error:
            problems.append(str(error))
            return absent


def directories(root: Path) -> list[Path]:
    """A run or an evaluation, or both sides of a saved comparison."""
    sides = [root / "model", root / "vs"]
    compared = (root / "comparison.json").is_file() and all(side.is_dir() for side in sides)
    return sides if compared else [root]


def columns(lines: Sequence[Mapping[str, Any]]) -> Json:
    """Lines of metrics by column: `phase`, `step`, and under `values` each name's numbers, None
    where a line lacks it or has no finite number."""
    names = dict.fromkeys(name for line in lines for name in line if name not in ("phase", "step"))
    return {
        "phase": [str(line["phase"]) for line in lines],
        "step": [line["step"] for line in lines],
        "values": {name: [_number(line.get(name)) for line in lines] for name in names},
    }


def _number(value: Any) -> float | None:
    read = None if isinstance(value, bool) else number(value)
    return float(f"{read:.6g}") if read is not None and math.isfinite(read) else None
