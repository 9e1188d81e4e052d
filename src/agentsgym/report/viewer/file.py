"""Writes the page of one or two runs to a file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from agentsgym.report.stored import Contents, RolloutSet, Source, groups
from agentsgym.report.viewer.data import block_data, comparison, index_entry, set_figures
from agentsgym.report.viewer.page import page
from agentsgym.report.viewer.sample import Chosen, RolloutName, choose
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.atomic import replacing

BLOCK = 32
"""Rollouts in one compressed piece of the page."""
MOST_ROLLOUTS = 1000
_MOST_COMPARED = 8

Json = dict[str, Any]


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
    wanted: Sequence[RolloutName] = (),
) -> Written:
    """Write the page with about `most` rollouts (None: all), shared by the sources.

    It also contains the groups of the rollouts `wanted` from the first source, and opens with the
    first of these. Raises ConfigError if one does not exist.
    """
    each = None if most is None else max(1, most // len(sources))
    chosen = [
        choose(source, each, wanted if place == 0 else ()) for place, source in enumerate(sources)
    ]
    data = _data(sources, chosen, wanted[0].address if wanted else None)
    with replacing(path) as part, part.open("w", encoding="utf-8") as file:
        for text in page(data):
            file.write(text)
    return Written(
        rollouts=sum(len(one.lines) for found in chosen for one in found),
        total=sum(len(one.contents.lines) for found in chosen for one in found),
        unread=sum(len(s.sets()) - len(found) for s, found in zip(sources, chosen, strict=True)),
        size=path.stat().st_size,
    )


def _data(
    sources: Sequence[Source], chosen: Sequence[Sequence[Chosen]], start: str | None
) -> Iterator[tuple[str, Any]]:
    pairs = list(zip(sources, chosen, strict=True))
    yield (
        "page-data",
        {
            "sources": [_source_data(source, found) for source, found in pairs],
            "comparisons": list(_comparisons(chosen)),
            "start": start,
        },
    )
    for number, (source, found) in enumerate(pairs):
        estimator = source.estimator
        for one in found:
            for place, lines in enumerate(blocks(one.lines)):
                name = f"block-{number}-{one.contents.of.id}-{place}"
                yield name, block_data(lines, source.pieces, one.contents.records, estimator)


def _source_data(source: Source, chosen: Sequence[Chosen]) -> Json:
    lists = {one.contents.of: list_data(one.lines, one.contents) for one in chosen}
    sets = [set_name(one) | lists.get(one, {"omitted": True}) for one in source.sets()]
    return source.overview() | {"sets": sets}


def _comparisons(sources: Sequence[Sequence[Chosen]]) -> Iterator[Json]:
    """The comparison of every two evaluations of the page; `left` and `right` name them as
    [number of the source, id]."""
    sets = [
        (number, one)
        for number, chosen in enumerate(sources)
        for one in chosen
        if one.contents.of.phase != "train"
    ]
    for (first, left), (second, right) in combinations(sets[:_MOST_COMPARED], 2):
        found = comparison(left.contents.lines, right.contents.lines)
        if found is not None:
            names = {"left": [first, left.contents.of.id], "right": [second, right.contents.of.id]}
            yield names | found


def list_data(lines: Sequence[StoredRollout], contents: Contents) -> Json:
    """The list of some of a set's rollouts, with the figures of all of them."""
    recorded = contents.records
    return {
        "total": len(contents.lines),
        "problem": contents.problem,
        "figures": set_figures(contents.lines) if contents.lines else None,
        "rollouts": [index_entry(line, line.rollout.session_id in recorded) for line in lines],
        "blocks": [len(block) for block in blocks(lines)],
    }


def set_name(one: RolloutSet) -> Json:
    """What identifies a set on the page."""
    return {"id": one.id, "phase": one.phase, "step": one.step, "dataset": one.dataset}


def blocks(lines: Sequence[StoredRollout], size: int = BLOCK) -> list[list[StoredRollout]]:
    """The lines in blocks of whole groups, of `size` rollouts or the group that exceeds it."""
    found: list[list[StoredRollout]] = []
    for members in groups(lines):
        if not found or len(found[-1]) + len(members) > size:
            found.append([])
        found[-1].extend(members)
    return found
