"""The rollouts of one generation or evaluation: the unit in which the viewer reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsgym.runs.files import RunDirectory, StoredRollout, read_file, read_token_records
from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.directory import dataset_of
from agentsgym.runs.files.formats import NewerFormat
from agentsgym.types.records import TokenRecord

_UNREADABLE = (DamagedFile, NewerFormat, OSError)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a set contains: its rollouts, group by group; the trainer's numbers by session; and
    what could not be read, in a sentence."""

    lines: list[StoredRollout]
    records: Mapping[str, TokenRecord]
    problem: str | None


@dataclass(frozen=True, slots=True)
class RolloutSet:
    """The shards of all processes for one `phase`, optimizer `step` and evaluation `dataset`, and
    the `records` of the trainer's numbers."""

    phase: str
    step: int
    dataset: str | None
    paths: tuple[Path, ...]
    records: tuple[Path, ...] = ()

    @property
    def id(self) -> str:
        """A name of letters, digits and hyphens, which means nothing to HTML or in an address."""
        dataset = "" if self.dataset is None else f"-{self.dataset.encode().hex()}"
        return f"{self.phase}-{self.step}{dataset}"

    def read(self) -> Contents:
        """Read everything that can be read."""
        lines: list[StoredRollout] = []
        found: dict[str, TokenRecord] = {}
        problem = None
        for path in self.paths:
            try:
                lines.extend(read_file(path))
            except _UNREADABLE as error:
                problem = str(error)
        for path in self.records:
            try:
                found |= {record.session_id: record for record in read_token_records(path)}
            except _UNREADABLE as error:
                problem = str(error)
        order = {group: n for n, group in enumerate(dict.fromkeys(map(_group, lines)))}
        ordered = sorted(lines, key=lambda line: order[_group(line)])
        return Contents(ordered, found, problem)


def rollout_sets(directory: RunDirectory, allowed: Callable[[Path], bool]) -> list[RolloutSet]:
    """The sets of a directory, in the order of the run, from the files that are allowed."""
    found: dict[tuple[str, int, str | None], list[Path]] = {}
    for phase, step, path in directory.rollout_files():
        key = phase, step, dataset_of(path)
        if allowed(path):
            found.setdefault(key, []).append(path)
    records: dict[int, list[Path]] = {}
    for step, path in directory.token_record_files():
        if allowed(path):
            records.setdefault(step, []).append(path)
    return [
        RolloutSet(*key, tuple(paths), tuple(records.get(key[1], ()) if key[0] == "train" else ()))
        for key, paths in found.items()
    ]


def groups(lines: Iterable[StoredRollout]) -> Iterator[Sequence[StoredRollout]]:
    """The groups of a set's lines, which are adjacent."""
    members: list[StoredRollout] = []
    for line in lines:
        if members and _group(line) != _group(members[0]):
            yield members
            members = []
        members.append(line)
    if members:
        yield members


def blocks(lines: Sequence[StoredRollout], size: int) -> list[list[StoredRollout]]:
    """The lines in blocks of whole groups, of `size` rollouts or the group that exceeds it."""
    found: list[list[StoredRollout]] = []
    for members in groups(lines):
        if not found or len(found[-1]) + len(members) > size:
            found.append([])
        found[-1].extend(members)
    return found


def _group(line: StoredRollout) -> int:
    return line.rollout.group
