"""Two players on the same suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentsgym.evaluation.comparison import Comparison, compare
from agentsgym.evaluation.evaluation import Played
from agentsgym.evaluation.exploration import GameFigures, SuiteFigures
from agentsgym.evaluation.suite import Suite


@dataclass(frozen=True, slots=True)
class SuiteComparison:
    """The `figures` of the second player, called `vs`, and by game the differences of both, first
    minus second."""

    vs: str
    figures: SuiteFigures
    games: Mapping[str, Comparison]


def suite_comparison(
    suite: Suite,
    first: Sequence[Played | None],
    second: Sequence[Played | None],
    vs: str,
    figures: SuiteFigures,
) -> SuiteComparison:
    """Compare what two players played of a suite; games that one of them did not play are left
    out."""
    return SuiteComparison(
        vs,
        figures,
        {
            game.name: compare(ours.rollouts, theirs.rollouts)
            for game, ours, theirs in zip(suite.games, first, second, strict=True)
            if ours is not None and theirs is not None
        },
    )


def side_by_side(
    figures: Sequence[SuiteFigures],
) -> list[tuple[str, list[GameFigures | None]]]:
    """Each game's name with its figures of every player; None where a player did not play it."""
    played = [{game.name: game for game in one.games} for one in figures]
    names = dict.fromkeys(name for games in played for name in games)
    return [(name, [games.get(name) for games in played]) for name in names]
