"""The figures of a suite as a page: one HTML file without a program, in the style of the viewer."""

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from agentsgym.evaluation import SuiteComparison, SuiteFigures
from agentsgym.evaluation.exploration import EpisodeFigures, Estimate, GameFigures, side_by_side
from agentsgym.report.viewer.page import style_policy
from agentsgym.report.viewer.script import style
from agentsgym.runs.files.atomic import write_text
from agentsgym.types.text import visible

Settings = Mapping[str, str | int | float | None]

_SCALE = (-0.25, 1.25)
"""The ends of a drawn scale, on which 0 and 1 are the references."""
_WIDTH, _HEIGHT = 160, 16


def write_suite_page(
    path: Path,
    model: str,
    found: SuiteFigures,
    settings: Settings,
    versus: Sequence[SuiteComparison] = (),
) -> None:
    """Write the page; `settings` say how the model played, `versus` with whom it is compared."""
    write_text(path, "".join(suite_page(model, found, settings, versus)))


def suite_page(
    model: str, found: SuiteFigures, settings: Settings, versus: Sequence[SuiteComparison] = ()
) -> Iterator[str]:
    """The parts of the page's text. Names and texts of a model or a suite are escaped, and the
    Content-Security-Policy allows nothing but the page's own style."""
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{style_policy()}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
    title = f"{model} on {found.suite} {found.version}"
    yield f"<title>{_text(title)}</title>\n<style>{style()}</style>\n</head>\n<body>\n<main>\n"
    yield f'<section class="panel"><h1>{_text(title)}</h1>\n{_facts(found, settings)}</section>\n'
    yield f'<section class="panel"><h2>Games</h2>\n{_games(found)}{_notes(found)}</section>\n'
    yield f'<section class="panel"><h2>Episodes</h2>\n{_episodes(found)}</section>\n'
    if versus:
        yield f'<section class="panel"><h2>Models</h2>\n{_models(model, found, versus)}</section>\n'
    for one in versus:
        yield from _against(model, one)
    yield "</main>\n</body>\n</html>\n"


def _models(model: str, found: SuiteFigures, versus: Sequence[SuiteComparison]) -> str:
    """The rewards of all players in each game, and their means over the suite."""
    figures = [found, *(one.figures for one in versus)]
    rows = [
        (_text(name), *("–" if game is None else _reward(game) for game in row))
        for name, row in side_by_side(figures)
    ]
    means = (one.information for one in figures)
    rows.append(("information", *("–" if one is None else _estimate(one) for one in means)))
    return _table(("", _text(model), *(_text(one.vs) for one in versus)), rows)


def _against(model: str, versus: SuiteComparison) -> Iterator[str]:
    """The second player's games, and the differences."""
    heads = ("", _text(model), _text(versus.vs), "difference of rewards", "finding")
    rows = [
        (
            _text(game),
            f"{one.reward.first:.3f}",
            f"{one.reward.second:.3f}",
            _estimate(Estimate(one.reward.difference, one.reward.interval)),
            one.reward.verdict,
        )
        for game, one in versus.games.items()
        if one.pairs
    ]
    yield f'<section class="panel"><h2>Against {_text(versus.vs)}</h2>\n{_table(heads, rows)}'
    note = "The same tasks and seeds, paired; 95 % intervals in brackets. First minus second."
    yield f'<p class="note">{note}</p></section>\n'
    yield f'<section class="panel"><h2>Games of {_text(versus.vs)}</h2>\n'
    yield f"{_games(versus.figures)}</section>\n"


def _text(value: object) -> str:
    return html.escape(visible(str(value)))


def _facts(found: SuiteFigures, settings: Settings) -> str:
    played = sum(game.played for game in found.games)
    failed = sum(game.failures for game in found.games)
    facts = {
        "information": "–" if found.information is None else _estimate(found.information),
        "rollouts": played,
        "failed": failed or None,
        "tasks": "all" if found.complete else "in part",
        "digest": found.digest,
        **settings,
    }
    entries = (
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
        for name, value in facts.items()
        if value is not None
    )
    return f'<dl class="facts">{"".join(entries)}</dl>\n'


def _games(found: SuiteFigures) -> str:
    heads = ("", "reward", "of best play", "", "information", "", "malformed", "failed")
    rows = [
        (
            _text(game.name),
            _reward(game),
            *_scaled(game.of_best, ""),
            *_scaled(game.information, "*" if game.without == "scored_alone" else ""),
            f"{game.evaluation.metrics.get('malformed', 0.0):.1%}",
            f"{game.failures} of {game.played}" if game.failures else "–",
        )
        for game in found.games
    ]
    if found.information is not None:
        rows.append(("mean", "", "", "", *_scaled(found.information, ""), "", ""))
    return _table(heads, rows)


def _reward(game: GameFigures) -> str:
    if game.too_long:
        return "does not fit"
    return _estimate(game.score) if game.failures < game.played else "–"


def _scaled(one: Estimate | None, mark: str) -> tuple[str, str]:
    """An estimate on the scale of the references, as text and drawn."""
    if one is None or math.isnan(one.value):
        return "–", ""
    return _estimate(one) + mark, _drawn(one)


def _episodes(found: SuiteFigures) -> str:
    most = max(len(game.episodes) for game in found.games)
    heads = ("", *(f"episode {k + 1}" for k in range(most)))
    rows = [
        (
            _text(game.name),
            *map(_episode, game.episodes),
            *[""] * (most - len(game.episodes)),
        )
        for game in found.games
    ]
    note = "Reward / expected reward of the best play; free shots are in parentheses."
    return f'{_table(heads, rows)}<p class="note">{note}</p>\n'


def _episode(one: EpisodeFigures) -> str:
    best = "" if one.best is None else f" / {one.best:.2f}"
    informs = "" if one.informing is None else f" · {one.informing:.0%} inform"
    text = f"{one.reward.value:.2f}{best}{informs}"
    return text if one.scored else f"({text})"


def _notes(found: SuiteFigures) -> str:
    notes = [
        "95 % intervals in brackets. Of best play: from the random player (0) to the best "
        "play (1). Information: from the best play without exploring (0) to the best play (1); "
        f"drawn from {_SCALE[0]:g} to {_SCALE[1]:g}."
    ]
    if any(game.without == "scored_alone" for game in found.games):
        notes.append("* Best play without exploring: the scored episodes alone; not in the mean.")
    if any(game.failures for game in found.games):
        notes.append("Rollouts that failed do not count.")
    if any(game.too_long for game in found.games):
        notes.append("Does not fit: conversations are longer than the model's context.")
    return "".join(f'<p class="note">{note}</p>\n' for note in notes)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are already markup; the first of a row is its head."""
    top = "".join(f'<th scope="col">{head}</th>' if head else "<td></td>" for head in heads)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>\n'
        for row in rows
    )
    return (
        f'<div class="wide"><table class="figures"><thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>\n"
    )


def _estimate(one: Estimate) -> str:
    low, high = one.ci95
    bounds = f" [{low:.2f}, {high:.2f}]" if low == low else ""
    return f"{one.value:.2f}{bounds}"


def _drawn(one: Estimate) -> str:
    """The value as a point and its interval as a line, between lines at the references."""
    low, high = (_place(end if end == end else one.value) for end in one.ci95)
    middle = _HEIGHT / 2
    marks = "".join(
        f'<line class="reference" x1="{_place(at):.1f}" x2="{_place(at):.1f}" y1="1" '
        f'y2="{_HEIGHT - 1}"/>'
        for at in (0.0, 1.0)
    )
    return (
        f'<svg class="interval" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{_estimate(one)}">{marks}'
        f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
        f'<circle cx="{_place(one.value):.1f}" cy="{middle}" r="4"/></svg>'
    )


def _place(value: float) -> float:
    start, end = _SCALE
    return 4 + (min(max(value, start), end) - start) / (end - start) * (_WIDTH - 8)
