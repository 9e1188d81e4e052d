"""Every rollout of a run on disk: gzipped JSON lines, one shard per generation or evaluation."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentsgym.runs.files.atomic import DamagedFile, replacing
from agentsgym.runs.files.directory import RunDirectory
from agentsgym.runs.files.encoding import RolloutLine, from_json, to_line
from agentsgym.runs.files.formats import ROLLOUTS, NewerFormat
from agentsgym.runs.files.stored import checked
from agentsgym.types import Rollout

# Level 1 is five times faster than the default, and the files are a fifth larger.
_COMPRESSION = 1
MOST_BYTES = 1 << 28
"""Limit for one line: an untrusted file may decompress to any length."""


class RolloutWriter:
    """A trainer's rollout sink: writes its rollouts to the run's shards.

    A shard appears only when it is complete. Each of several processes writes shards of its own.
    `agent_tokens` counts the tokens that this process sampled in training.
    """

    def __init__(self, run_dir: Path) -> None:
        self._directory = RunDirectory(run_dir)
        self.agent_tokens = 0

    def __call__(self, rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> None:
        """Store rollouts; `info` has `phase`, `step`, `advantages` by row or None, the process's
        `rank` if there are several, and the `dataset`'s name if there are several evaluation sets.
        """
        if info["phase"] == "train":
            self.agent_tokens += sum(rollout.agent_tokens for rollout in rollouts)
        lines = _lines(rollouts, info)
        dataset, rank = info.get("dataset"), info.get("rank", 0)
        write_shard(self._directory.shard(info["phase"], info["step"], dataset, rank=rank), lines)


def _lines(rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> Iterator[RolloutLine]:
    given = info.get("advantages")
    by_row = None if given is None else iter(given)
    for rollout in rollouts:
        advantages = None
        if by_row is not None:
            advantages = tuple(tuple(map(float, next(by_row))) for _ in rollout.rows)
        yield RolloutLine(rollout, info["phase"], info["step"], advantages, info.get("dataset"))


def write_shard(path: Path, lines: Iterable[RolloutLine]) -> None:
    """Write rollouts to a shard; it appears only when it is complete."""
    with (
        replacing(path) as part,
        gzip.open(part, "wb", compresslevel=_COMPRESSION) as file,
    ):
        for line in lines:
            file.write(to_line(line) + b"\n")


def read_shard(path: Path) -> Iterator[RolloutLine]:
    """The rollouts of one shard, also of an older version. Raises DamagedFile if it has any other
    content, NewerFormat if a newer agentsgym wrote it."""
    number = 0
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline(MOST_BYTES):
                number += 1
                if len(line) == MOST_BYTES:
                    raise DamagedFile(f"it is longer than {MOST_BYTES} bytes")
                yield _read_line(line, path)
    except DamagedFile as error:
        raise DamagedFile(f"{path} is damaged: line {number}: {error}") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DamagedFile(f"{path} is damaged after line {number}: {error}") from None


def _read_line(text: bytes, path: Path) -> RolloutLine:
    try:
        return checked(from_json(ROLLOUTS.current(json.loads(text), path)))
    except (DamagedFile, NewerFormat):
        raise
    except KeyError as error:
        raise DamagedFile(f"{error} is missing") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFile(f"this is not a rollout ({error})") from None


def read_lines(run_dir: str | Path, phase: str | None = None) -> Iterator[RolloutLine]:
    """All stored data about a run's rollouts, by step; of one phase or of all."""
    for name, _, path in RunDirectory(Path(run_dir)).shards():
        if phase in (None, name):
            yield from read_shard(path)


def read_rollouts(run_dir: str | Path, phase: str | None = None) -> Iterator[Rollout]:
    """The rollouts of a run as they were played; `phase` is "before", "train", "eval" or "after".

    A group's rollouts are adjacent within a shard; group numbers start again at each step. The
    last group of a process's shard may continue in the next process's.
    """
    return (line.rollout for line in read_lines(run_dir, phase))


def drop_rollouts_from(run_dir: Path, step: int) -> None:
    """Delete the shards that a run resumed at `step` will play again."""
    for phase, played, path in RunDirectory(run_dir).shards():
        again = {"train": played >= step, "eval": played > step, "after": True}
        if again.get(phase, False):
            path.unlink()
