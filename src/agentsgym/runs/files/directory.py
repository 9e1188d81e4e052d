"""The paths of a run's files, which `docs/run-directory.md` describes; files that are written
completely or not at all; and the right to write them: only one writer per directory.
"""

import errno
import itertools
import json
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from filelock import BaseFileLock, FileLock, Timeout

from agentsgym.envs import ConfigError

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
        # The weights that earned most in training, if the run keeps them (keep_best).
        self.best = root / "best.safetensors"
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

    def replay(self, step: int, digest: str) -> Path:
        """The directory of the branches of the generation at optimizer step `step`; `digest` is of
        what they are played with."""
        return self.root / "replay" / f"train-{step:06d}-{digest}"

    def effects(self, step: int) -> list[Path]:
        """The effects that were measured with them, the last ones first."""
        found = self.replay(step, "").parent.glob(f"train-{step:06d}-*/effects.json")
        return sorted(found, key=lambda path: -path.stat().st_mtime_ns)

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


# -- files that are written completely or not at all ----------------------------------------------


class DamagedFile(ValueError):
    """A stored file cannot be read; the message names the file and the problem."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields the path of a new file or directory, which replaces `path` at the end of the block. If
    the block or a write fails, `path` stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    remove(part)
    try:
        yield part
        _flush(part)
        if part.is_dir():
            remove(path)  # a directory cannot be replaced in one step
        os.replace(part, path)
    except BaseException as error:
        _name(error, path)
        with suppress(OSError):
            remove(part)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file's name to a disk error inside the block."""
    try:
        yield
    except OSError as error:
        _name(error, path)
        raise


def _name(error: BaseException, path: Path) -> None:
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = str(path)


def opened(path: Path) -> BinaryIO:
    """A file of a run, opened to be read. Raises DamagedFile for what is no file, such as a pipe,
    which might never end; OSError for what can't be opened."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DamagedFile(f"{path} is no file")
    return path.open("rb")


def read_bytes(path: Path, most: int = -1) -> bytes:
    """What a file of a run holds, or its first `most` bytes. Raises the errors of `opened`."""
    with opened(path) as file:
        return file.read(most)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def overwrite(path: Path, text: str) -> None:
    """Write over the content of a file, for a disk that has no room for a second one. Raises
    OSError without a change if the text needs more room than the file has."""
    data, has = text.encode(), path.stat()
    if len(data) > max(has.st_size, has.st_blocks * 512):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def _flush(path: Path) -> None:
    """Wait until the contents are on the disk, so that a crash cannot leave an empty file."""
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())


def remove(path: Path) -> None:
    """Delete a file or directory, if there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -- the lock --------------------------------------------------------------------------------------


_FILE = ".lock"


class RunInUse(ConfigError):
    """Another process writes to the run directory; the message names it."""


def lock_directory(directory: Path) -> BaseFileLock:
    """The right to write to a directory, which is made if there is none, until its `release` or the
    end of this process. Raises RunInUse if a process has the lock already; OSError if the directory
    cannot be written, or its lock is a link."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _FILE
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RunInUse(
            f"{directory} is being written {_holder(path)}; wait until it has ended, stop it, or "
            "choose another directory"
        ) from None
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%F %T")}
    with suppress(OSError):  # Windows refuses it; the text is only for messages
        path.write_text(json.dumps(who))
    return lock


def _holder(path: Path) -> str:
    """The lock's holder, according to the file."""
    try:
        who = json.loads(path.read_text()[:1000])
        return f"by process {int(who['pid'])} on {who['host']} since {who['since']}"
    except (ValueError, TypeError, KeyError, OSError):
        return "by another process"


def claim(
    directory: Path, *, resume: bool, set_aside: bool, note: Callable[[str], None]
) -> BaseFileLock:
    """The lock of a directory that contains a run to resume, or nothing. An earlier run is renamed
    if `set_aside` says so; otherwise, and for a directory of other files, ConfigError is raised."""
    run = RunDirectory(directory)
    others = directory.iterdir() if directory.is_dir() and not run.is_run() else ()
    if any(path.name != _FILE for path in others):
        raise ConfigError(f"{directory} is not empty and holds no run; name another output_dir")
    lock = lock_directory(directory)
    if resume:
        return lock
    if run.is_run():
        try:
            if not set_aside:
                raise ConfigError(
                    f"{directory} already contains a run; resume it or choose another"
                )
            names = (directory.with_name(f"{directory.name}.{n}") for n in itertools.count(1))
            kept = next(name for name in names if not name.exists())
            directory.rename(kept)
        finally:
            lock.release()
        note(f"The earlier run is now {kept}.")
        lock = lock_directory(directory)
    return lock
