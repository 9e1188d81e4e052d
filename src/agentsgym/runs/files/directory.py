"""The paths of a run's files. `docs/run-directory.md` describes the format."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_PHASES = ("before", "probe", "warmstart", "warmstarted", "train", "eval", "after")
_ROLLOUTS = re.compile(
    r"(?P<phase>[a-z]+)-(?P<step>\d+)(?:-r(?P<rank>\d+))?(?:\.(?P<dataset>[^/]+))?\.parquet"
)

_TOKEN_RECORD = re.compile(r"(\d+)(?:-r\d+)?\.parquet")


class RunDirectory:
    """The paths of one run below `root`; reading them creates no files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.yaml"  # the resolved configuration
        self.metrics = root / "metrics.jsonl"  # a line per logged optimizer step or evaluation
        self.summary = root / "summary.json"  # the figures before and after, times, versions
        # Settings, status and figures of a saved evaluation, whose rollouts are beside it.
        self.evaluation = root / "evaluation.json"
        self.picture = root / "learning-curve.png"
        self.rollouts = root / "rollouts"
        # The trainer's numbers for the tokens of a sample of rollouts.
        self.token_records = root / "token-records"
        self.checkpoints = root / "checkpoints"  # of which each is a folder checkpoint-N
        self.model = root / "model"  # the trained model and its tokenizer
        self.reference = root / "reference"  # the initial model, if the run made it and KL needs it
        # Of a pretrained model: figures, checkpoints and the model.
        self.warm_start = root / "warm-start"

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
