"""The page of one or two runs in a file: all rollouts of a small run, a sample of a large one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsgym.report.stored import Contents, Source, groups, spread
from agentsgym.report.viewer.library import Chosen, Library
from agentsgym.report.viewer.page import page
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.atomic import replacing

MOST_ROLLOUTS = 1000
_MOST_GENERATIONS = 16


@dataclass(frozen=True, slots=True)
class Written:
    """What a page contains: `rollouts` of `total` in the sets that were read; `unread` sets."""

    rollouts: int
    total: int
    unread: int
    size: int


def write_page(path: Path, sources: Sequence[Source], most: int | None = MOST_ROLLOUTS) -> Written:
    """Write the page with about `most` rollouts (None: all), shared by the sources."""
    each = None if most is None else max(1, most // len(sources))
    chosen = [choose(source, each) for source in sources]
    by_name = [{one.contents.of.id: one for one in kept} for kept in chosen]
    library = Library(sources, by_name)
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


def choose(source: Source, most: int | None) -> list[Chosen]:
    """At most about `most` rollouts (None: all) in whole groups, as many of each evaluation and of
    each of some generations, spread evenly over training with the first and the last."""
    every = source.sets()
    training = [one for one in every if one.phase == "train"]
    kept = training if most is None else spread(training, _MOST_GENERATIONS)
    read = {one: one.read() for one in every if one.phase != "train" or one in kept}
    total = sum(len(contents.lines) for contents in read.values())
    budget = total if most is None or total <= most else most // len(read)
    return [Chosen(_lines(contents, budget), contents) for contents in read.values()]


def _lines(contents: Contents, budget: int) -> list[StoredRollout]:
    """Groups spread evenly over the set, those with the trainer's numbers first (in two sets of
    equal groups, the same ones)."""
    if len(contents.lines) <= budget:
        return contents.lines
    every = groups(contents.lines)
    count = max(1, budget * len(every) // len(contents.lines))
    recorded = [place for place, members in enumerate(every) if _is_recorded(members, contents)]
    others = [place for place in range(len(every)) if place not in recorded]
    places = spread(recorded, count)
    places += spread(others, count - len(places))
    return [line for place in sorted(places) for line in every[place]]


def _is_recorded(members: Sequence[StoredRollout], contents: Contents) -> bool:
    return any(line.rollout.session_id in contents.records for line in members)
