"""Tables of comparisons and of a suite's figures, for the terminal and as a page: one HTML file
without a program, in the style of the viewer."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsgym.evaluation import Comparison, Difference, SuiteComparison, SuiteFigures
from agentsgym.evaluation.exploration import (
    EpisodeFigures,
    GameFigures,
    MeanWithInterval,
    side_by_side,
)
from agentsgym.report.viewer.page import head, style_policy
from agentsgym.runs.files.atomic import write_text
from agentsgym.types.text import visible

Settings = Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class Scaled:
    """A cell: a figure on the scale of the references, where 0 and 1 are; the page also draws
    it."""

    estimate: MeanWithInterval
    mark: str = ""

    def __str__(self) -> str:
        return _estimate(self.estimate) + self.mark


Cell = str | Scaled


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Rows of cells, of which the first is a row's name, below `heads`; `notes` stand below."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


# -- a comparison ----------------------------------------------------------------------------------


def comparison_table(first: str, second: str, result: Comparison, title: str = "") -> FigureTable:
    """Both players' figures and their paired differences, first minus second."""
    rows: list[tuple[Cell, ...]] = []
    for prefix, part in {
        "": result,
        **{f"{p}: ": c for p, c in result.environments.items()},
    }.items():
        if part.win_rate is not None:
            rows.append(_compared(f"{prefix}win rate", part.win_rate, first, second, "{:.1%}"))
        if part.reward != part.win_rate:
            rows.append(_compared(f"{prefix}reward", part.reward, first, second, "{:.3f}"))
    pairs = f"{result.pairs} pairs of rollouts in {result.clusters} clusters of tasks"
    return FigureTable(
        title or f"{first} against {second}",
        ("", first, second, "difference", "finding"),
        tuple(rows),
        (pairs + _left_out(result.left_out), "First minus second; 95 % intervals in brackets."),
    )


def suite_comparison_table(first: str, versus: SuiteComparison) -> FigureTable:
    """The rewards of both players in each game, and their paired differences."""
    parts = {name: one for name, one in versus.games.items() if one.pairs}
    rows = [_compared(n, one.reward, first, versus.vs, "{:.3f}") for n, one in parts.items()]
    left = _left_out(sum(one.left_out for one in versus.games.values())).removeprefix(", ")
    note = "The same tasks and seeds, first minus second; 95 % intervals in brackets."
    return FigureTable(
        f"reward, {first} against {versus.vs}",
        ("", first, versus.vs, "difference", "finding"),
        tuple(rows),
        (note, left) if left else (note,),
    )


def _compared(name: str, one: Difference, first: str, second: str, form: str) -> tuple[Cell, ...]:
    low, high = one.interval
    signed = form.replace(":", ":+")
    bounds = f" [{signed.format(low)}, {signed.format(high)}]" if low == low else ""
    finding = "no difference shown"
    if one.shown:
        finding = f"{first if one.difference > 0 else second} is higher"
    values = (form.format(value) if value == value else "–" for value in (one.first, one.second))
    return name, *values, signed.format(one.difference) + bounds, finding


def _left_out(count: int) -> str:
    return f", {count} left out because a side failed" if count else ""


# -- a suite ---------------------------------------------------------------------------------------


def suite_tables(
    model: str, figures: SuiteFigures, versus: Sequence[SuiteComparison] = ()
) -> Iterator[FigureTable]:
    """The games, with the figure over all of them; the rewards of each episode; and with other
    players their comparisons and the rewards of all."""
    part = "" if figures.complete else ", in part"
    yield _games(f"{model} on {figures.suite} {figures.version} ({figures.digest}){part}", figures)
    yield _episodes(figures)
    for one in versus:
        yield suite_comparison_table(model, one)
    if versus:
        yield _models(model, figures, versus)


def _games(title: str, figures: SuiteFigures) -> FigureTable:
    rows: list[tuple[Cell, ...]] = [
        (
            game.name,
            _reward(game),
            _scaled(game.of_best),
            _scaled(game.information, "*" if game.without == "scored_alone" else ""),
            _informs(game),
        )
        for game in figures.games
    ]
    if figures.information is not None:
        rows.append(("mean", "", "", _scaled(figures.information), ""))
    heads = ("", "reward", "of best play", "information", "informs")
    return FigureTable(title, heads, tuple(rows), tuple(_notes(figures.games)))


def _notes(games: Sequence[GameFigures]) -> Iterator[str]:
    yield (
        "95 % intervals in brackets. Of best play: from the random player (0) to the best play "
        "(1). Information: from the best play without exploring (0) to the best play (1). Informs: "
        "share of actions, free shots / scored."
    )
    if any(game.without == "scored_alone" for game in games):
        yield "* best play without exploring: the scored episodes alone; not in the mean"
    long = [f"{game.name} {game.too_long} of {game.played}" for game in games if game.too_long]
    if long:
        yield f"does not fit: longer than the model's context are {', '.join(long)} rollouts"
    failed = [game for game in games if game.failures and not game.too_long]
    if failed:
        counts = ", ".join(f"{game.name} {game.failures} of {game.played}" for game in failed)
        yield f"rollouts that failed do not count: {counts}"
    if any(game.without == "never_informing" and game.information is None for game in games):
        yield "no mean, because games of it have no figures"
    malformed = max(game.evaluation.metrics.get("malformed", 0.0) for game in games)
    if malformed:
        yield f"up to {malformed:.0%} of the actions in a game were malformed"


def _episodes(figures: SuiteFigures) -> FigureTable:
    most = max(len(game.episodes) for game in figures.games)
    rows = [
        (game.name, *map(_episode, game.episodes), *[""] * (most - len(game.episodes)))
        for game in figures.games
    ]
    heads = ("", *(f"{k + 1}" for k in range(most)))
    note = "Free shots are in parentheses."
    return FigureTable("reward by episode / best play", heads, tuple(rows), (note,))


def _models(model: str, figures: SuiteFigures, versus: Sequence[SuiteComparison]) -> FigureTable:
    """The rewards of all players in each game, and their means over the suite."""
    every = [figures, *(one.figures for one in versus)]
    rows: list[tuple[Cell, ...]] = [
        (name, *("–" if game is None else _reward(game) for game in row))
        for name, row in side_by_side(every)
    ]
    means = (one.information for one in every)
    rows.append(("information", *("–" if one is None else _estimate(one) for one in means)))
    heads = ("", model, *(one.vs for one in versus))
    return FigureTable(f"reward on {figures.suite} {figures.version}", heads, tuple(rows))


def _reward(game: GameFigures) -> str:
    if game.too_long:
        return "does not fit"
    return _estimate(game.score) if game.failures < game.played else "failed"


def _scaled(one: MeanWithInterval | None, mark: str = "") -> Cell:
    return "–" if one is None or math.isnan(one.value) else Scaled(one, mark)


def _informs(game: GameFigures) -> str:
    metrics = game.evaluation.metrics
    if "informing" not in metrics:
        return "–"
    if "informing/free_shots" not in metrics:
        return f"{metrics['informing']:.1%}"
    return f"{metrics['informing/free_shots']:.0%} / {metrics['informing/scored']:.0%}"


def _episode(one: EpisodeFigures) -> str:
    best = "" if one.best is None else f"/{one.best:.2f}"
    text = f"{one.reward.value:.2f}{best}"
    return text if one.scored else f"({text})"


def _estimate(one: MeanWithInterval) -> str:
    low, high = one.ci95
    bounds = f" [{low:.2f}, {high:.2f}]" if low == low else ""
    return f"{one.value:.2f}{bounds}"


# -- the page --------------------------------------------------------------------------------------

_SCALE = (-0.25, 1.25)
"""The ends of a drawn scale, on which 0 and 1 are the references."""
_WIDTH, _HEIGHT = 160, 16


def write_suite_page(
    path: Path,
    model: str,
    figures: SuiteFigures,
    settings: Settings,
    versus: Sequence[SuiteComparison] = (),
) -> None:
    """Write the page; `settings` say how the model played, `versus` with whom it is compared."""
    write_text(path, "".join(suite_page(model, figures, settings, versus)))


def suite_page(
    model: str, figures: SuiteFigures, settings: Settings, versus: Sequence[SuiteComparison] = ()
) -> Iterator[str]:
    """The parts of the page's text. Names and texts of a model or a suite are escaped, and the
    Content-Security-Policy allows nothing but the page's own style."""
    title = _text(f"{model} on {figures.suite} {figures.version}")
    yield f"{head(title, style_policy())}<body>\n<main>\n"
    yield f'<section class="panel"><h1>{title}</h1>\n{_facts(figures, settings)}</section>\n'
    for table in suite_tables(model, figures, versus):
        yield f'<section class="panel"><h2>{_text(table.title)}</h2>\n{_markup(table)}</section>\n'
    yield "</main>\n</body>\n</html>\n"


def _text(value: object) -> str:
    return html.escape(visible(str(value)))


def _facts(figures: SuiteFigures, settings: Settings) -> str:
    facts = {
        "rollouts": sum(game.played for game in figures.games),
        "failed": sum(game.failures for game in figures.games) or None,
        "tasks": "all" if figures.complete else "in part",
        **settings,
    }
    entries = (
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
        for name, value in facts.items()
        if value is not None
    )
    return f'<dl class="facts">{"".join(entries)}</dl>\n'


def _markup(table: FigureTable) -> str:
    top = "".join(
        f'<th scope="col">{_text(head)}</th>' if head else "<td></td>" for head in table.heads
    )
    body = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>{"".join(map(_cell, row[1:]))}</tr>\n'
        for row in table.rows
    )
    notes = "".join(f'<p class="note">{_text(note)}</p>\n' for note in table.notes)
    return (
        f'<div class="wide"><table class="figures"><thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>\n{notes}"
    )


def _cell(cell: Cell) -> str:
    drawing = _drawing(cell.estimate) if isinstance(cell, Scaled) else ""
    return f"<td>{_text(cell)}{drawing}</td>"


def _drawing(one: MeanWithInterval) -> str:
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
