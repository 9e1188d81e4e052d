"""The figures of a suite: each game between random and best play, and the value of information."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentsgym.evaluation.comparison import Comparison, compare
from agentsgym.evaluation.evaluate import Evaluation, Played, default_cluster
from agentsgym.evaluation.intervals import Interval, cluster_mean, spread_interval
from agentsgym.evaluation.metrics import mean
from agentsgym.evaluation.suite import References, Suite, SuiteGame
from agentsgym.types import Rollout, Step
from agentsgym.types.requests import is_context_overflow


@dataclass(frozen=True, slots=True)
class MeanWithInterval:
    """A figure and its 95 % interval; two NaNs where it is unknown."""

    value: float
    ci95: Interval

    def rescaled(self, zero: float, one: float) -> "MeanWithInterval":
        """The figure on a scale on which `zero` becomes 0 and `one` becomes 1."""
        width = one - zero
        low, high = self.ci95
        return MeanWithInterval(
            (self.value - zero) / width, ((low - zero) / width, (high - zero) / width)
        )


@dataclass(frozen=True, slots=True)
class EpisodeFigures:
    """One episode of a game's trials: its reward, the share of informing actions (None if the
    environment marks none), and the expected rewards of a random player and of the best play. A
    free shot's reward is not `scored`."""

    scored: bool
    reward: MeanWithInterval
    informing: float | None
    random: float | None
    best: float | None


@dataclass(frozen=True, slots=True)
class GameFigures:
    """One game. `score` is the mean reward of the scored episodes; `of_best` is the same on a scale
    from the random player (0) to the best play (1), `information` on one from the best play without
    exploring (0) to the best play (1). The two are None without references, and
    if conversations did not fit in the model's context: those that fit would be a choice among
    tasks by their course. `too_long` counts them."""

    name: str
    played: int
    failures: int
    too_long: int
    score: MeanWithInterval
    regret: float | None
    of_best: MeanWithInterval | None
    information: MeanWithInterval | None
    without: str | None
    episodes: tuple[EpisodeFigures, ...]
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class SuiteFigures:
    """A model's figures on a suite. `information` is the share of the value of information that it
    realizes: the mean of the games whose reference never takes an informing action; None if one of
    them was not played. `complete` says whether all tasks of all games were played."""

    suite: str
    version: int
    digest: str
    complete: bool
    information: MeanWithInterval | None
    games: tuple[GameFigures, ...]


def suite_figures(suite: Suite, played: Sequence[Played | None], *, complete: bool) -> SuiteFigures:
    """The figures of `played[k]`, the rollouts of game k (None: it was not played)."""
    games = [
        game_figures(game, one)
        for game, one in zip(suite.games, played, strict=True)
        if one is not None
    ]
    known = [game.references.without for game in suite.games if game.references is not None]
    shares = [
        game.information
        for game in games
        if game.without == "never_informing" and game.information is not None
    ]
    whole = bool(shares) and len(shares) == known.count("never_informing")
    return SuiteFigures(
        suite.name,
        suite.version,
        suite.digest,
        complete and len(games) == len(suite.games),
        mean_estimate(shares) if whole else None,
        tuple(games),
    )


def mean_estimate(parts: Sequence[MeanWithInterval]) -> MeanWithInterval:
    """The mean of independent estimates; its interval by the method of Zou and Donner (2008): each
    end is the root of the sum of the squared distances of the parts' ends."""
    count = len(parts)
    below = math.sqrt(sum((one.value - one.ci95[0]) ** 2 for one in parts)) / count
    above = math.sqrt(sum((one.ci95[1] - one.value) ** 2 for one in parts)) / count
    value = mean([one.value for one in parts])
    return MeanWithInterval(value, (value - below, value + above))


def game_figures(game: SuiteGame, played: Played) -> GameFigures:
    """The figures of one game's rollouts; failed ones do not count."""
    live = [rollout for rollout in played.rollouts if not rollout.failed]
    too_long = sum(is_context_overflow(rollout.error) for rollout in played.rollouts)
    references = game.references
    scaled = None if too_long else references
    score = _estimate([rollout.final_reward for rollout in live], live, references)
    scored = [episode.score_weight > 0 for episode in live[0].episodes] if live else []
    return GameFigures(
        name=game.name,
        played=len(played.rollouts),
        failures=played.evaluation.failures,
        too_long=too_long,
        score=score,
        regret=played.evaluation.regret,
        of_best=_scaled(score, scaled, "random", scored),
        information=_scaled(score, scaled, "unexploring", scored),
        without=None if references is None else references.without,
        episodes=tuple(
            _episode(index, live, references, counts) for index, counts in enumerate(scored)
        ),
        evaluation=played.evaluation,
    )


def _episode(
    index: int, live: Sequence[Rollout], references: References | None, scored: bool
) -> EpisodeFigures:
    having = [rollout for rollout in live if len(rollout.episodes) > index]
    episodes = [rollout.episodes[index] for rollout in having]
    return EpisodeFigures(
        scored=scored,
        reward=_estimate([episode.reward for episode in episodes], having, references),
        informing=_informing([step for episode in episodes for step in episode.actions]),
        random=None if references is None else references.random[index],
        best=None if references is None else references.best[index],
    )


def _informing(steps: Sequence[Step]) -> float | None:
    if all(step.info.get("informing") is None for step in steps):
        return None
    return mean([float(bool(step.info.get("informing"))) for step in steps])


def _estimate(
    values: Sequence[float], live: Sequence[Rollout], references: References | None
) -> MeanWithInterval:
    clusters = [default_cluster(rollout.task_data) for rollout in live]
    estimate = cluster_mean(values, clusters)
    low, high = references.range if references is not None else (-math.inf, math.inf)
    return MeanWithInterval(estimate.mean, spread_interval(estimate, values, clusters, low, high))


def _scaled(
    score: MeanWithInterval, references: References | None, zero: str, scored: Sequence[bool]
) -> MeanWithInterval | None:
    """The score on the scale from a reference to the best play, over the scored episodes."""
    if references is None or not any(scored):
        return None
    start, best = (
        mean([reward for reward, counts in zip(rewards, scored, strict=True) if counts])
        for rewards in (getattr(references, zero), references.best)
    )
    return score.rescaled(start, best) if best > start else None


# -- several players -------------------------------------------------------------------------------


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
