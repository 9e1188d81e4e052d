"""Writes the page of one or two runs to a file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.report.viewer.comparing import comparisons
from agentsgym.report.viewer.detail import block_data
from agentsgym.report.viewer.index import index_entry, set_figures
from agentsgym.report.viewer.naming import RolloutName, with_groups, with_sets
from agentsgym.report.viewer.page import page
from agentsgym.report.viewer.rollout_set import Contents, RolloutSet, blocks
from agentsgym.report.viewer.selection import Chosen, choose_rollouts, choose_sets
from agentsgym.report.viewer.source import Source
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.atomic import replacing

BLOCK = 32
"""Rollouts in one compressed piece of the page."""
MOST_ROLLOUTS = 1000

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
        _choose(source, each, wanted if place == 0 else ()) for place, source in enumerate(sources)
    ]
    data = _data(sources, chosen, wanted[0].address if wanted else None)
    with replacing(path) as part, part.open("w", encoding="utf-8") as file:
        for text in page(data):
            file.write(text)
    return Written(
        rollouts=sum(len(one.lines) for found in chosen for one in found),
        total=sum(one.total for found in chosen for one in found),
        unread=sum(len(s.sets()) - len(found) for s, found in zip(sources, chosen, strict=True)),
        size=path.stat().st_size,
    )


def _choose(source: Source, most: int | None, wanted: Sequence[RolloutName]) -> list[Chosen]:
    every = source.sets()
    sets = with_sets(choose_sets(every, everything=most is None), every, wanted)
    chosen = choose_rollouts({one: one.read() for one in sets}, most)
    return [with_groups(one, wanted) for one in chosen]


def _data(
    sources: Sequence[Source], chosen: Sequence[Sequence[Chosen]], start: str | None
) -> Iterator[tuple[str, Any]]:
    pairs = list(zip(sources, chosen, strict=True))
    yield (
        "page-data",
        {
            "sources": [_source_data(source, found) for source, found in pairs],
            "comparisons": comparisons(chosen),
            "start": start,
        },
    )
    for number, (source, found) in enumerate(pairs):
        estimator = source.estimator
        for one in found:
            for place, lines in enumerate(blocks(one.lines, BLOCK)):
                name = f"block-{number}-{one.rollouts.id}-{place}"
                records = one.contents.records
                yield name, block_data(lines, source.pieces(), records, estimator)


def _source_data(source: Source, chosen: Sequence[Chosen]) -> Json:
    by_set = {one.rollouts: one for one in chosen}
    sets = []
    for one in source.sets():
        found = by_set.get(one)
        told = {"omitted": True} if found is None else _chosen_data(found)
        sets.append(set_name(one) | told)
    return source.overview() | {"sets": sets}


def _chosen_data(chosen: Chosen) -> Json:
    return list_data(chosen.lines, chosen.contents)


def list_data(lines: Sequence[StoredRollout], contents: Contents) -> Json:
    """The list of some of a set's rollouts, with the figures of all of them."""
    recorded = contents.records
    return {
        "total": len(contents.lines),
        "problem": contents.problem,
        "figures": set_figures(contents.lines) if contents.lines else None,
        "rollouts": [index_entry(line, line.rollout.session_id in recorded) for line in lines],
        "blocks": [len(block) for block in blocks(lines, BLOCK)],
    }


def set_name(one: RolloutSet) -> Json:
    """What identifies a set on the page."""
    return {"id": one.id, "phase": one.phase, "step": one.step, "dataset": one.dataset}
