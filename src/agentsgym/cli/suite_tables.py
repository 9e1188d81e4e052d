"""Tables of a suite's figures."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from agentsgym.cli.console import shown
from agentsgym.cli.tables import number, share

if TYPE_CHECKING:
    from agentsgym.evaluation import SuiteFigures
    from agentsgym.evaluation.exploration import EpisodeFigures, Estimate, GameFigures


def suite_tables(model: str, found: "SuiteFigures") -> Iterator[Table]:
    """The games, with the figure over all of them, and the rewards of each episode."""
    part = "" if found.complete else ", in part"
    title = f"{model} on {found.suite} {found.version} ({found.digest}){part}"
    table = _table(title, "reward", "of best play", "information", "informs")
    for game in found.games:
        score = number(game.score.value if game.failures < game.played else None)
        table.add_row(
            shown(game.name), score, _estimate(game.of_best), _information(game), _informs(game)
        )
    if found.information is not None:
        table.add_section()
        table.add_row("mean", "", "", _estimate(found.information), "")
    notes = ["95 % intervals in brackets. Informs: share of actions, free shots / scored."]
    if any(game.without == "scored_alone" for game in found.games):
        notes.append("* best play without exploring: the scored episodes alone; not in the mean")
    failed = [f"{g.name} {g.failures} of {g.played}" for g in found.games if g.failures]
    if failed:
        notes.append(shown(f"rollouts that failed do not count: {', '.join(failed)}"))
    malformed = max(game.evaluation.metrics.get("malformed", 0.0) for game in found.games)
    if malformed:
        notes.append(f"up to {malformed:.0%} of the actions in a game were malformed")
    table.caption, table.caption_justify = "\n".join(notes), "left"
    yield table
    yield _episodes(found)


def _episodes(found: "SuiteFigures") -> Table:
    most = max(len(game.episodes) for game in found.games)
    table = _table("reward by episode / best play", *(f"{k + 1}" for k in range(most)))
    for game in found.games:
        table.add_row(shown(game.name), *map(_episode, game.episodes))
    table.caption, table.caption_justify = "free shots in parentheses", "left"
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=shown(title), title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _episode(one: "EpisodeFigures") -> str:
    best = "" if one.best is None else f"/{one.best:.2f}"
    text = f"{one.reward.value:.2f}{best}"
    return text if one.scored else f"({text})"


def _estimate(one: "Estimate | None") -> str:
    if one is None:
        return "–"
    low, high = one.ci95
    bounds = f" [{low:.2f}, {high:.2f}]" if low == low else ""
    return shown(f"{one.value:.2f}{bounds}")


def _information(game: "GameFigures") -> str:
    return _estimate(game.information) + ("*" if game.without == "scored_alone" else "")


def _informs(game: "GameFigures") -> str:
    metrics = game.evaluation.metrics
    if "informing" not in metrics:
        return "–"
    if "informing/free_shots" not in metrics:
        return share(metrics["informing"])
    return f"{metrics['informing/free_shots']:.0%} / {metrics['informing/scored']:.0%}"
