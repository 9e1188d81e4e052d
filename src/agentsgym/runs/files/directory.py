"""The paths of a run's files. `docs/run-directory.md` describes the format."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_PHASES = ("before", "probe", "warmstart", "warmstarted", "train", "eval", "after")
_ROLLOUTS = re.compile(
    r"(?P<phase>[a-z]+)-(?P<step>\d+)(?:-r(?P<rank>\d+))?(?:\.(?P<dataset>[^/]+))?\.parquet"
)

_TOKEN_RECORD = re.compile(r"(\d+)(?:-r\d+)?\.parquet")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run below `root`; reading them creates no files."""

    root: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.root / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One line per logged optimizer step or evaluation."""
        return self.root / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The figures before and after, times, versions."""
        return self.root / "summary.json"

    @property
    def evaluation(self) -> Path:
        """Settings, status and figures of a saved evaluation, whose rollouts are beside it."""
        return self.root / "evaluation.json"

    @property
    def picture(self) -> Path:
        """The learning curve."""
        return self.root / "learning-curve.png"

    @property
    def rollouts(self) -> Path:
        """Directory of the rollouts."""
        return self.root / "rollouts"

    @property
    def token_records(self) -> Path:
        """Directory of the trainer's numbers for the tokens of a sample of rollouts."""
        return self.root / "token-records"

    @property
    def checkpoints(self) -> Path:
        """Directory of `checkpoint-N`."""
        return self.root / "checkpoints"

    @property
    def model(self) -> Path:
        """The trained model and its tokenizer."""
        return self.root / "model"

    @property
    def reference(self) -> Path:
        """The run's initial model, if the run created it and KL needs it."""
        return self.root / "reference"

    @property
    def warm_start(self) -> Path:
        """The warm start of a pretrained model: its figures, checkpoints and model."""
        return self.root / "warm-start"

    def rank_error(self, rank: int) -> Path:
        """The error that ended another process than rank 0, until it is in the summary."""
        return self.root / f".error-r{rank}"

    def rank_errors(self) -> list[Path]:
        """All such files."""
        return sorted(self.root.glob(".error-r*"))

    def is_run(self) -> bool:
        """Whether a run was started here."""
        return self.config.is_file()

    def rollout_file(
        self, phase: str, step: int, dataset: str | None = None, *, rank: int = 0
    ) -> Path:
        """The file of the rollouts that the process `rank` played in `phase` at optimizer step
        `step`, on the evaluation set `dataset` if there are several."""
        process = f"-r{rank}" if rank else ""
        name = "" if dataset is None else f".{quote(dataset, safe='')}"
        return self.rollouts / f"{phase}-{step:06d}{process}{name}.parquet"

    def rollout_files(self) -> Iterator[tuple[str, int, Path]]:
        """Phase, step and path of each file of rollouts, by step; "before" comes first, "after"
        last, and the files of several processes by rank. Phases of a warm start have steps of their
        own."""
        order = {name: number for number, name in enumerate(_PHASES)}
        files = [
            (
                int(match["step"]),
                order.get(match["phase"], len(order)),
                int(match["rank"] or 0),
                path,
            )
            for path in self.rollouts.glob("*.parquet")
            if (match := _ROLLOUTS.fullmatch(path.name))
        ]
        for step, _, _, path in sorted(files):
            yield path.name.partition("-")[0], step, path

    def token_record(self, step: int, *, rank: int = 0) -> Path:
        """The file of the process `rank` for the generation at optimizer step `step`."""
        process = f"-r{rank}" if rank else ""
        return self.token_records / f"{step:06d}{process}.parquet"

    def token_record_files(self) -> Iterator[tuple[int, Path]]:
        """Step and path of each such file, by step."""
        for path in sorted(self.token_records.glob("*.parquet")):
            if match := _TOKEN_RECORD.fullmatch(path.name):
                yield int(match[1]), path

    def all_checkpoints(self) -> list[tuple[int, Path]]:
        """Step and path of every complete checkpoint, the newest first."""
        complete = [
            (int(match[1]), path)
            for path in self.checkpoints.glob("checkpoint-*")
            if (match := _CHECKPOINT.fullmatch(path.name))
            and (path / "trainer_state.json").is_file()  # it is written last
        ]
        return sorted(complete, reverse=True)

    def last_checkpoint(self) -> tuple[int, Path] | None:
        """Step and path of the newest complete checkpoint, or None."""
        return next(iter(self.all_checkpoints()), None)


def dataset_of(path: Path) -> str | None:
    """The evaluation set that the name of a file of rollouts names; None for the only one."""
    match = _ROLLOUTS.fullmatch(path.name)
    return None if match is None or match["dataset"] is None else unquote(match["dataset"])
