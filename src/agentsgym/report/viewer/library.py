"""What a page asks for, piece by piece, by address: the same in a file and from a server."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any, TypeVar

from agentsgym.report.stored import Contents, Source, groups
from agentsgym.report.viewer.data import block_data, comparison, index_entry, set_figures
from agentsgym.runs.files import StoredRollout

Json = dict[str, Any]
T = TypeVar("T")

BLOCK = 32
"""Rollouts in one block, the piece with their tokens."""
_KEPT_SETS = 4
_MOST_COMPARED = 8
_NUMBER = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The `lines` of a set that the page contains, and everything that the set contains."""

    lines: list[StoredRollout]
    contents: Contents


class NotThere(LookupError):
    """The run has no such piece."""


class Library:
    """The pieces of one or two sources. `chosen` has the sets of each source that a file contains,
    by id; None for all, of which those read last are kept in memory."""

    def __init__(
        self, sources: Sequence[Source], chosen: Sequence[Mapping[str, Chosen]] | None = None
    ) -> None:
        self._sources = sources
        self._chosen = chosen
        self._read = lru_cache(_KEPT_SETS)(self._read_set)

    def addresses(self) -> Iterator[str]:
        """Every piece of what is chosen, and the comparisons of its first evaluations."""
        yield "overview"
        evaluations = []
        for source, sets in enumerate(self._chosen or ()):
            for name, one in sets.items():
                yield f"set/{source}/{name}"
                yield from (f"block/{source}/{name}/{n}" for n, _ in enumerate(blocks(one.lines)))
                if one.contents.of.phase != "train":
                    evaluations.append(f"{source}/{name}")
        for left, right in permutations(evaluations[:_MOST_COMPARED], 2):
            yield f"comparison/{left}/{right}"

    def piece(self, address: str) -> Json:
        """What the page asks for: the overview, the list of a set's rollouts, a block of them with
        their tokens, or the difference between two sets. Raises NotThere."""
        match address.split("/"):
            case ["overview"]:
                return {"sources": [self._overview(*one) for one in enumerate(self._sources)]}
            case ["set", source, name]:
                return _list(self._read(source, name))
            case ["block", source, name, place]:
                chosen, read = self._read(source, name), _at(self._sources, source)
                lines = _at(blocks(chosen.lines), place)
                return block_data(lines, read.pieces, chosen.contents.records, read.estimator)
            case ["comparison", *names] if len(names) == 4:
                left, right = self._read(*names[:2]), self._read(*names[2:])
                return comparison(left.contents.lines, right.contents.lines) or {}
        raise NotThere(address)

    def _overview(self, place: int, source: Source) -> Json:
        overview = source.overview()
        status = (overview["summary"] or overview["evaluation"] or {}).get("status")
        kept = None if self._chosen is None else self._chosen[place]
        sets = [
            {
                "id": one.id,
                "phase": one.phase,
                "step": one.step,
                "dataset": one.dataset,
                "omitted": kept is not None and one.id not in kept,
            }
            for one in source.sets()
        ]
        return overview | {"sets": sets, "growing": status == "running"}

    def _read_set(self, source: str, name: str) -> Chosen:
        if self._chosen is not None:
            return _at(self._chosen, source)[name]
        for one in _at(self._sources, source).sets():
            if one.id == name:
                contents = one.read()
                return Chosen(contents.lines, contents)
        raise NotThere(name)


def _at(values: Sequence[T], number: str) -> T:
    if not _NUMBER.fullmatch(number) or int(number) >= len(values):
        raise NotThere(number)
    return values[int(number)]


def _list(one: Chosen) -> Json:
    """The list of a set's chosen rollouts, with the figures of all of them."""
    contents = one.contents
    recorded = contents.records
    return {
        "total": len(contents.lines),
        "problem": contents.problem,
        "figures": set_figures(contents.lines) if contents.lines else None,
        "rollouts": [index_entry(line, line.rollout.session_id in recorded) for line in one.lines],
        "blocks": [len(block) for block in blocks(one.lines)],
    }


def blocks(lines: Sequence[StoredRollout], size: int = BLOCK) -> list[list[StoredRollout]]:
    """The lines in blocks of whole groups, of `size` rollouts or the group that exceeds it."""
    parts: list[list[StoredRollout]] = []
    for members in groups(lines):
        if not parts or len(parts[-1]) + len(members) > size:
            parts.append([])
        parts[-1].extend(members)
    return parts
