"""The rollouts of one generation or evaluation: the unit in which the viewer reads."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from agentsgym.runs.files import RolloutLine, RunDirectory
from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.formats import NewerFormat
from agentsgym.runs.files.rollouts import read_shard

_NAME = re.compile(r"[a-z]+-\d+(?:-r\d+)?(?:\.(?P<dataset>[^/]+))?\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class RolloutSet:
    """The shards of all processes for one `phase`, optimizer `step` and evaluation `dataset`."""

    phase: str
    step: int
    dataset: str | None
    paths: tuple[Path, ...]

    def read(self) -> tuple[list[RolloutLine], str | None]:
        """Its rollouts, group by group, and what could not be read, in a sentence."""
        lines: list[RolloutLine] = []
        problem = None
        for path in self.paths:
            try:
                lines.extend(read_shard(path))
            except (DamagedFile, NewerFormat, OSError) as error:
                problem = str(error)
        order = {group: n for n, group in enumerate(dict.fromkeys(map(_group, lines)))}
        return sorted(lines, key=lambda line: order[_group(line)]), problem


def rollout_sets(directory: RunDirectory) -> list[RolloutSet]:
    """The sets of a directory, in the order of the run."""
    found: dict[tuple[str, int, str | None], list[Path]] = {}
    for phase, step, path in directory.shards():
        match = _NAME.fullmatch(path.name)
        dataset = match["dataset"] if match else None
        key = phase, step, None if dataset is None else unquote(dataset)
        found.setdefault(key, []).append(path)
    return [RolloutSet(*key, tuple(paths)) for key, paths in found.items()]


def groups(lines: Iterable[RolloutLine]) -> Iterator[Sequence[RolloutLine]]:
    """The groups of a set's lines, which are adjacent."""
    members: list[RolloutLine] = []
    for line in lines:
        if members and _group(line) != _group(members[0]):
            yield members
            members = []
        members.append(line)
    if members:
        yield members


def blocks(lines: Sequence[RolloutLine], size: int) -> list[list[RolloutLine]]:
    """The lines in blocks of whole groups, of `size` rollouts or the group that exceeds it."""
    found: list[list[RolloutLine]] = []
    for members in groups(lines):
        if not found or len(found[-1]) + len(members) > size:
            found.append([])
        found[-1].extend(members)
    return found


def _group(line: RolloutLine) -> int:
    return line.rollout.group
