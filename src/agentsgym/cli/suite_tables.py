"""Tables of a suite's figures."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from agentsgym.cli.console import shown
from agentsgym.cli.tables import number, share

if TYPE_CHECKING:
    from agentsgym.evaluation import SuiteComparison, SuiteFigures
    from agentsgym.evaluation.exploration import EpisodeFigures, Estimate, GameFigures


def suite_tables(model: str, found: "SuiteFigures") -> Iterator[Table]:
    """The games, with the figure over all of them, and the rewards of each episode."""
    part = "" if found.complete else ", in part"
    title = f"{model} on {found.suite} {found.version} ({found.digest}){part}"
    table = _table(title, "reward", "of best play", "information", "informs")
    for game in found.games:
        scaled = _estimate(game.of_best), _information(game)
        table.add_row(shown(game.name), _reward(game), *scaled, _informs(game))
    if found.information is not None:
        table.add_section()
        table.add_row("mean", "", "", _estimate(found.information), "")
    table.caption, table.caption_justify = "\n".join(_notes(found.games)), "left"
    yield table
    yield _episodes(found)


def _notes(games: "Sequence[GameFigures]") -> Iterator[str]:
    yield "95 % intervals in brackets. Informs: share of actions, free shots / scored."
    if any(game.without == "scored_alone" for game in games):
        yield "* best play without exploring: the scored episodes alone; not in the mean"
    long = [f"{game.name} {game.too_long} of {game.played}" for game in games if game.too_long]
    if long:
        yield shown(f"does not fit: longer than the model's context are {', '.join(long)} rollouts")
    failed = [g for g in games if 0 < g.failures < g.played and not g.too_long]
    if failed:
        told = ", ".join(f"{game.name} {game.failures} of {game.played}" for game in failed)
        yield shown(f"rollouts that failed do not count: {told}")
    if any(game.without == "never_informing" and game.information is None for game in games):
        yield "no mean, because games of it have no figures"
    malformed = max(game.evaluation.metrics.get("malformed", 0.0) for game in games)
    if malformed:
        yield f"up to {malformed:.0%} of the actions in a game were malformed"


def _reward(game: "GameFigures") -> str:
    if game.too_long:
        return "does not fit"
    return "failed" if game.failures == game.played else number(game.score.value)


def _episodes(found: "SuiteFigures") -> Table:
    most = max(len(game.episodes) for game in found.games)
    table = _table("reward by episode / best play", *(f"{k + 1}" for k in range(most)))
    for game in found.games:
        table.add_row(shown(game.name), *map(_episode, game.episodes))
    table.caption, table.caption_justify = "free shots in parentheses", "left"
    return table


def suite_comparison_table(model: str, found: "SuiteComparison") -> Table:
    """The rewards of both players in each game, their difference and whether it is shown."""
    table = _table(f"reward, {model} against {found.vs}", "first", "second", "difference", "")
    for game, one in found.games.items():
        if not one.pairs:
            continue
        reward = one.reward
        first, second = number(reward.first), number(reward.second)
        low, high = reward.interval
        bounds = f" [{low:.2f}, {high:.2f}]" if low == low else ""
        gap = shown(f"{reward.difference:+.3f}{bounds}")
        table.add_row(shown(game), first, second, gap, reward.verdict)
    left = sum(one.left_out for one in found.games.values())
    if left:
        table.caption = f"{left} pairs left out because a side failed"
    return table


def models_table(model: str, found: "SuiteFigures", versus: "Sequence[SuiteComparison]") -> Table:
    """The rewards of all players in each game, and their means over the suite."""
    from agentsgym.evaluation.exploration import side_by_side

    names = [model, *(one.vs for one in versus)]
    figures = [found, *(one.figures for one in versus)]
    table = _table(f"reward on {found.suite} {found.version}", *map(shown, names))
    for game, row in side_by_side(figures):
        table.add_row(shown(game), *map(_score, row))
    table.add_section()
    table.add_row("information", *(_estimate(one.information) for one in figures))
    return table


def _score(game: "GameFigures | None") -> str:
    if game is None:
        return "–"
    return _reward(game) if game.too_long or game.failures == game.played else _estimate(game.score)


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
