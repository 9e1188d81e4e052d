"""The page of one or two runs in a file: all rollouts of a small run, a sample of a large one."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from typing import Any

from agentsgym.report.stored import Contents, Source, groups, spread
from agentsgym.report.viewer.data import block_data, comparison, index_entry, set_figures
from agentsgym.runs.files import StoredRollout
from agentsgym.runs.files.directory import replacing

Json = dict[str, Any]

MOST_ROLLOUTS = 1000
BLOCK = 32
"""Rollouts in one block, the piece with their tokens."""
_MOST_GENERATIONS = 16
_MOST_COMPARED = 8


@dataclass(frozen=True, slots=True)
class Chosen:
    """The `lines` of a set that the page contains, and everything that the set contains."""

    lines: list[StoredRollout]
    contents: Contents


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
    steps: tuple[int, int] | None = None,
) -> Written:
    """Write the page with about `most` rollouts (None: all), shared by the sources; of training,
    those of the optimizer steps from the first to the second of `steps`."""
    each = None if most is None else max(1, most // len(sources))
    chosen = [choose(source, each, steps) for source in sources]
    with replacing(path) as part, part.open("w", encoding="utf-8") as file:
        for text in page(_pieces(sources, chosen)):
            file.write(text)
    return Written(
        rollouts=sum(len(one.lines) for kept in chosen for one in kept),
        total=sum(len(one.contents.lines) for kept in chosen for one in kept),
        unread=sum(len(s.sets()) - len(kept) for s, kept in zip(sources, chosen, strict=True)),
        size=path.stat().st_size,
    )


# -- which rollouts --------------------------------------------------------------------------------


def choose(source: Source, most: int | None, steps: tuple[int, int] | None) -> list[Chosen]:
    """At most about `most` rollouts (None: all) in whole groups, as many of each evaluation and of
    each of some generations, spread evenly over training with the first and the last."""
    every = source.sets()
    training = [one for one in every if one.phase == "train" and _is_in(one.step, steps)]
    kept = training if most is None else spread(training, _MOST_GENERATIONS)
    read = {one: one.read() for one in every if one.phase != "train" or one in kept}
    total = sum(len(contents.lines) for contents in read.values())
    budget = total if most is None or total <= most else most // len(read)
    return [Chosen(_lines(contents, budget), contents) for contents in read.values()]


def _is_in(step: int, steps: tuple[int, int] | None) -> bool:
    return steps is None or steps[0] <= step <= steps[1]


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


# -- the pieces of the page ------------------------------------------------------------------------


def _pieces(
    sources: Sequence[Source], chosen: Sequence[Sequence[Chosen]]
) -> Iterator[tuple[str, Json]]:
    """The data of the page by address: the overview, for each set the list of its rollouts and
    blocks of them with their tokens, and the comparisons of the first evaluations."""
    yield "overview", {"sources": list(map(_overview, sources, chosen))}
    evaluations: dict[str, list[StoredRollout]] = {}
    for number, (source, kept) in enumerate(zip(sources, chosen, strict=True)):
        for one in kept:
            contents, parts = one.contents, blocks(one.lines)
            address = f"{number}/{contents.of.id}"
            yield f"set/{address}", _list(one, parts)
            for place, lines in enumerate(parts):
                yield f"block/{address}/{place}", block_data(lines, source, contents)
            if contents.of.phase != "train":
                evaluations[address] = contents.lines
    for left, right in permutations(list(evaluations)[:_MOST_COMPARED], 2):
        between = comparison(evaluations[left], evaluations[right])
        yield f"comparison/{left}/{right}", between or {}


def _overview(source: Source, kept: Sequence[Chosen]) -> Json:
    contained = {one.contents.of.id for one in kept}
    sets = [
        {
            "id": one.id,
            "phase": one.phase,
            "step": one.step,
            "dataset": one.dataset,
            "omitted": one.id not in contained,
        }
        for one in source.sets()
    ]
    return source.overview() | {"sets": sets}


def _list(one: Chosen, parts: Sequence[Sequence[StoredRollout]]) -> Json:
    """The list of a set's chosen rollouts, with the figures of all of them."""
    contents = one.contents
    recorded = contents.records
    return {
        "total": len(contents.lines),
        "problem": contents.problem,
        "figures": set_figures(contents.lines) if contents.lines else None,
        "rollouts": [index_entry(line, line.rollout.session_id in recorded) for line in one.lines],
        "blocks": [len(block) for block in parts],
    }


def blocks(lines: Sequence[StoredRollout]) -> list[list[StoredRollout]]:
    """The lines in blocks of whole groups, of `BLOCK` rollouts or the group that exceeds it."""
    parts: list[list[StoredRollout]] = []
    for members in groups(lines):
        if not parts or len(parts[-1]) + len(members) > BLOCK:
            parts.append([])
        parts[-1].extend(members)
    return parts


# -- the page --------------------------------------------------------------------------------------


_ASSETS = files("agentsgym.report.viewer") / "assets"
_WAITING = "The page is loading. It needs JavaScript and a browser of 2023 or later."


def page(data: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The parts of the file's text; `data` has the id and the value of each piece of data."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>agentsgym</title>\n<style>{style()}</style>\n</head>\n"
    )
    yield f'<body>\n<div id="app"><p>{_WAITING}</p></div>\n'
    for name, value in data:
        yield f'<script type="application/json" id="{name}">"{inert(value)}"</script>\n'
    for text in scripts():
        yield f"<script>{text}</script>\n"
    yield "</body>\n</html>\n"


def scripts() -> tuple[str, str]:
    """The programs of the page, in their order."""
    return _text("vendor/uPlot.iife.min.js"), program()


@cache
def policy() -> str:
    """The Content-Security-Policy."""
    allowed = " ".join(_hash(text) for text in scripts())
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style())}; "
        "img-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


# -- its parts -------------------------------------------------------------------------------------

_MODULES = (
    *("text", "dom", "theme", "store", "virtual_list", "filters", "charts", "conversation"),
    *("tokens", "tokens_view", "rollout_view", "rollouts_view", "run_view", "compare_view", "app"),
)
_IMPORT_OR_EXPORT = re.compile(r"^(import .*\n|export )", re.MULTILINE)


@cache
def program() -> str:
    """Our modules in one scope, each after those that it imports; no two have a name in common."""
    texts = (_IMPORT_OR_EXPORT.sub("", _text(f"js/{module}.js")) for module in _MODULES)
    return f'"use strict";\n(() => {{\n{"".join(texts)}}})();'


@cache
def style() -> str:
    """The page's style."""
    return _text("vendor/uPlot.min.css") + _text("style.css")


def _text(path: str) -> str:
    return (_ASSETS / path).read_text(encoding="utf-8")


def inert(data: Any) -> str:
    """Gzipped JSON in base64."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    packed = gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode("ascii")
