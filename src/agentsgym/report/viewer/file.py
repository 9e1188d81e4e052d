"""The page of one or two runs in a file: all rollouts of a small run, a sample of a large one, and
those that the user named."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsgym.envs import ConfigError
from agentsgym.report.stored import Contents, Source, groups, spread
from agentsgym.report.viewer.library import Chosen, Library
from agentsgym.report.viewer.page import page
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.atomic import replacing

MOST_ROLLOUTS = 1000
_MOST_GENERATIONS = 16
_NAME = re.compile(r"(?P<set>[a-z]+-\d+(?:-[0-9a-f]+)?)/(?P<group>\d+)/(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class RolloutName:
    """The rollout `number` of a `group` in the set with the id `set`, such as `train-40/3/1`."""

    set: str
    group: int
    number: int

    @property
    def address(self) -> str:
        """Where it stands on the page of its run."""
        return f"#/rollout/0/{self.set}/{self.group}.{self.number}"

    def __str__(self) -> str:
        return f"{self.set}/{self.group}/{self.number}"


def rollout_name(text: str) -> RolloutName:
    """The name that a user wrote. Raises ConfigError."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is no rollout: write SET/GROUP/NUMBER, such as train-40/3/1")
    return RolloutName(match["set"], int(match["group"]), int(match["number"]))


@dataclass(frozen=True, slots=True)
class Written:
    """What a page contains: `rollouts` of `total` in the sets that were read; `unread` sets."""

    rollouts: int
    total: int
    unread: int
    size: int


def write_page(
    path: Path,
    sources: Sequence[Source],
    most: int | None = MOST_ROLLOUTS,
    names: Sequence[RolloutName] = (),
) -> Written:
    """Write the page with about `most` rollouts (None: all), shared by the sources.

    It also contains the groups of the rollouts `names` from the first source, and opens with the
    first of these. Raises ConfigError if one does not exist.
    """
    each = None if most is None else max(1, most // len(sources))
    chosen = [
        choose(source, each, names if place == 0 else ()) for place, source in enumerate(sources)
    ]
    by_name = [{one.contents.of.id: one for one in kept} for kept in chosen]
    library = Library(sources, by_name, names[0].address if names else None)
    pieces = ((address, library.piece(address)) for address in library.addresses())
    with replacing(path) as part, part.open("w", encoding="utf-8") as file:
        for text in page(pieces):
            file.write(text)
    return Written(
        rollouts=sum(len(one.lines) for kept in chosen for one in kept),
        total=sum(len(one.contents.lines) for kept in chosen for one in kept),
        unread=sum(len(s.sets()) - len(kept) for s, kept in zip(sources, chosen, strict=True)),
        size=path.stat().st_size,
    )


def choose(source: Source, most: int | None, names: Sequence[RolloutName] = ()) -> list[Chosen]:
    """At most about `most` rollouts (None: all) in whole groups, as many of each evaluation and of
    each of some generations, spread evenly over training with the first and the last; and the
    groups of the rollouts `names`. Raises ConfigError if one of these does not exist."""
    every = source.sets()
    for name in names:
        if name.set not in {one.id for one in every}:
            raise ConfigError(f"there is no rollout {name}: the run has no set {name.set}")
    training = [one for one in every if one.phase == "train"]
    kept = training if most is None else spread(training, _MOST_GENERATIONS)
    ids = {one.id for one in kept} | {name.set for name in names}
    read = {one: one.read() for one in every if one.phase != "train" or one.id in ids}
    total = sum(len(contents.lines) for contents in read.values())
    budget = total if most is None or total <= most else most // len(read)
    return [Chosen(_lines(contents, budget, names), contents) for contents in read.values()]


def _lines(contents: Contents, budget: int, names: Sequence[RolloutName]) -> list[StoredRollout]:
    """Groups spread evenly over the set, those with the trainer's numbers first (in two sets of
    equal groups, the same ones), and those of the named rollouts."""
    mine = {(name.group, name.number): name for name in names if name.set == contents.of.id}
    for line in contents.lines:
        mine.pop((line.rollout.group, line.rollout.index), None)
    for name in mine.values():
        raise ConfigError(f"there is no rollout {name} in the set {name.set}")
    if len(contents.lines) <= budget:
        return contents.lines
    every = groups(contents.lines)
    count = max(1, budget * len(every) // len(contents.lines))
    recorded = [place for place, members in enumerate(every) if _is_recorded(members, contents)]
    others = [place for place in range(len(every)) if place not in recorded]
    places = spread(recorded, count)
    places += spread(others, count - len(places))
    numbers = {name.group for name in names if name.set == contents.of.id}
    return [
        line
        for place, members in enumerate(every)
        if place in places or members[0].rollout.group in numbers
        for line in members
    ]


def _is_recorded(members: Sequence[StoredRollout], contents: Contents) -> bool:
    return any(line.rollout.session_id in contents.records for line in members)
