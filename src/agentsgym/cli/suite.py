"""`agentsgym eval --suite`: plays a suite and prints its tables."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from agentsgym.cli.console import BAD_USAGE, fail, out, print_json, quiet_libraries, tell
from agentsgym.cli.options import split_settings
from agentsgym.cli.players import PlayOptions
from agentsgym.cli.tables import compared, plain_data, wide_table
from agentsgym.evaluation import (
    Played,
    Suite,
    SuiteComparison,
    SuiteFigures,
    suite_comparison,
    suite_figures,
)
from agentsgym.evaluation.exploration import (
    EpisodeFigures,
    GameFigures,
    MeanWithInterval,
    side_by_side,
)
from agentsgym.runs import RunConfig
from agentsgym.runs.evaluate import contestant
from agentsgym.runs.files.records import write_record
from agentsgym.runs.from_config import make_env
from agentsgym.runs.scripted_agents import available_agents
from agentsgym.runs.settings import SCRIPTED
from agentsgym.runs.suites import check_names, load_suite, place_of, play_suite
from agentsgym.types.names import import_from_here


def evaluate_suite(
    source: str, given: dict[str, Any], options: PlayOptions, *, as_json: bool
) -> None:
    """Let the model, and those of --vs, play the suite; print their figures."""
    quiet_libraries()

    suite = _suite(source, given, options)
    model, others = options.models[0], options.models[1:]
    run = options.first(suite.games[0].env, given)
    runs = {model: run} | {name: options.other(name, run) for name in others}
    for name, its_run in runs.items():
        _check_has_agent(suite, name, its_run)
    folders = ["model", "vs", *(f"vs-{number}" for number in range(2, len(others) + 1))]
    output, complete = options.output, "eval.episodes" not in options.settings
    all_played = [
        _play(suite, name, runs[name], options, output and (output / folder if others else output))
        for name, folder in zip(options.models, folders, strict=False)
    ]
    first, *second = all_played
    figures = suite_figures(suite, first, complete=complete)
    versus = [
        suite_comparison(
            suite, first, played, name, suite_figures(suite, played, complete=complete)
        )
        for name, played in zip(others, second, strict=True)
    ]
    data = {"model": model, **plain_data(figures)}
    if versus:
        data["comparisons"] = [plain_data(one) for one in versus]
    if output is not None:
        write_record(output / "suite.json", data)
    if as_json:
        print_json(data)
    else:
        for table in suite_tables(model, figures, versus):
            out.print(table)
    for one in (figures, *(other.figures for other in versus)):
        if all(game.failures == game.played for game in one.games):
            raise fail("every rollout failed")


def _suite(source: str, given: dict[str, Any], options: PlayOptions) -> Suite:
    """The suite, checked."""
    for key in split_settings(given)[0]:
        raise fail(f"a suite fixes the settings of its games; leave out {key}", BAD_USAGE)
    if "eval.rollouts_per_task" in options.settings:
        raise fail("a suite fixes the rollouts of a task; leave out --rollouts-per-task", BAD_USAGE)
    suite = load_suite(source)
    if options.trust:
        import_from_here(*(game.env for game in suite.games))
    else:
        check_names(suite)
    return suite


def _check_has_agent(suite: Suite, name: str, run: RunConfig) -> None:
    """Exit with an error if no game has this scripted agent."""
    kind = name.removeprefix(SCRIPTED)
    places = (make_env(place_of(game, run)) for game in suite.games)
    if kind != name and not any(kind in available_agents(env) for env in places):
        raise fail(f"no game of the suite {suite.name} has {name}", BAD_USAGE)


def _play(
    suite: Suite, name: str, run: RunConfig, options: PlayOptions, output: Path | None
) -> list[Played | None]:
    """What the model played of each game."""
    with contestant(name, run, seed=options.seed, note=tell) as player:
        played = play_suite(
            suite,
            player,
            seed=options.seed,
            most_tasks=options.settings.get("eval.episodes"),
            output=output,
            on_game=lambda game: tell(f"{suite.name}: {game}"),
        )
    for game, one in zip(suite.games, played, strict=True):
        failed = [] if one is None else [rollout for rollout in one.rollouts if rollout.failed]
        if one and failed:
            reason = str(failed[0].error).strip().splitlines()[-1]
            count = f"{len(failed)} of {len(one.rollouts)} rollouts failed"
            tell(f"{game.name}: {count}; the first: {reason}")
    return played


# -- tables ----------------------------------------------------------------------------------------


def suite_tables(
    model: str, figures: SuiteFigures, versus: Sequence[SuiteComparison] = ()
) -> Iterator[Table]:
    """The games, with the figure over all of them; the rewards of each episode; and with other
    players their comparisons and the rewards of all."""
    part = "" if figures.complete else ", in part"
    yield _games(f"{model} on {figures.suite} {figures.version} ({figures.digest}){part}", figures)
    yield _episodes(figures)
    for one in versus:
        yield _comparison(model, one)
    if versus:
        yield _models(model, figures, versus)


def _games(title: str, figures: SuiteFigures) -> Table:
    rows = [
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
    return wide_table(title, heads, rows, list(_notes(figures.games)))


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


def _episodes(figures: SuiteFigures) -> Table:
    most = max(len(game.episodes) for game in figures.games)
    rows = [
        (game.name, *map(_episode, game.episodes), *[""] * (most - len(game.episodes)))
        for game in figures.games
    ]
    heads = ("", *(f"{k + 1}" for k in range(most)))
    note = "Free shots are in parentheses."
    return wide_table("reward by episode / best play", heads, rows, [note])


def _comparison(model: str, versus: SuiteComparison) -> Table:
    """The rewards of both players in each game, and their paired differences."""
    parts = {name: one for name, one in versus.games.items() if one.pairs}
    rows = [compared(n, one.reward, model, versus.vs, "{:.3f}") for n, one in parts.items()]
    notes = ["The same tasks and seeds, first minus second; 95 % intervals in brackets."]
    if left := sum(one.left_out for one in versus.games.values()):
        notes.append(f"{left} left out because a side failed")
    title = f"reward, {model} against {versus.vs}"
    return wide_table(title, ("", model, versus.vs, "difference", "finding"), rows, notes)


def _models(model: str, figures: SuiteFigures, versus: Sequence[SuiteComparison]) -> Table:
    """The rewards of all players in each game, and their means over the suite."""
    every = [figures, *(one.figures for one in versus)]
    rows = [
        (name, *("–" if game is None else _reward(game) for game in row))
        for name, row in side_by_side(every)
    ]
    means = (one.information for one in every)
    rows.append(("information", *("–" if one is None else _estimate(one) for one in means)))
    heads = ("", model, *(one.vs for one in versus))
    return wide_table(f"reward on {figures.suite} {figures.version}", heads, rows)


def _reward(game: GameFigures) -> str:
    if game.too_long:
        return "does not fit"
    return _estimate(game.score) if game.failures < game.played else "failed"


def _scaled(one: MeanWithInterval | None, mark: str = "") -> str:
    return "–" if one is None or math.isnan(one.value) else _estimate(one) + mark


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
