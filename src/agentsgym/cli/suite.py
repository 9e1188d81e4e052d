"""`agentsgym eval --suite`: plays a suite and prints its tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from agentsgym import __version__
from agentsgym.cli.console import BAD_USAGE, FAILURE, fail, quiet_libraries
from agentsgym.cli.engine_options import SCRIPTED, tell
from agentsgym.cli.evaluated_run import evaluated_run
from agentsgym.cli.evaluating import PlayOptions, plain_data, print_json, print_tables
from agentsgym.cli.options import split_settings
from agentsgym.evaluation import (
    Played,
    Suite,
    SuiteComparison,
    SuiteFigures,
    suite_comparison,
    suite_figures,
)
from agentsgym.report.suite import suite_tables, write_suite_page
from agentsgym.runs import RunConfig
from agentsgym.runs.files.evaluation import write_comparison
from agentsgym.runs.from_config import make_env
from agentsgym.runs.scripted_agents import available_agents
from agentsgym.runs.suites import check_names, load_suite, place_of, play_suite
from agentsgym.types import Rollout
from agentsgym.types.trust import import_from_here


def evaluate_suite(
    source: str,
    model: str,
    given: dict[str, Any],
    options: PlayOptions,
    output: Path | None,
    page: Path | None,
    *,
    as_json: bool,
) -> None:
    """Let the model, and those of --vs, play the suite; print their figures, and write them to
    `page`."""
    quiet_libraries()

    figures, versus = _figures(source, model, given, options, output)
    data = {"model": model, **plain_data(figures)}
    if versus:
        data["comparisons"] = [plain_data(one) for one in versus]
    if output is not None:
        write_comparison(output / "suite.json", data)
    if page is not None:
        write_suite_page(page, model, figures, _facts(options), versus)
        tell(f"Page: {page}")
    if as_json:
        print_json(data)
    else:
        print_tables(suite_tables(model, figures, versus))
    for one in (figures, *(other.figures for other in versus)):
        if all(game.failures == game.played for game in one.games):
            raise fail("every rollout failed", FAILURE)


def _figures(
    source: str, model: str, given: dict[str, Any], options: PlayOptions, output: Path | None
) -> tuple[SuiteFigures, list[SuiteComparison]]:
    """The model's figures, and how they compare with those of each model of --vs."""
    suite = _suite(source, given, options)
    complete = options.episodes is None
    run = options.apply(evaluated_run(model, suite.games[0].env, given, trust=options.trust))
    env = suite.games[0].env
    others = [(name, options.other(name, env, run)) for name in options.vs]
    for name, other in others:
        _check_has_agent(suite, name, other)
    own = output and output / "model" if others else output
    first = _play(suite, model, run, options, own)
    versus = []
    for number, (name, other) in enumerate(others, start=1):
        place = output and output / ("vs" if number == 1 else f"vs-{number}")
        played = _play(suite, name, other, options, place, other=True)
        theirs = suite_figures(suite, played, complete=complete)
        versus.append(suite_comparison(suite, first, played, name, theirs))
    return suite_figures(suite, first, complete=complete), versus


def _facts(options: PlayOptions) -> dict[str, str | int | float | None]:
    """How the model played, for readers of the page."""
    return {
        "seed": options.seed,
        "temperature": options.temperature,
        "tasks of a game, at most": options.episodes,
        "agentsgym": __version__,
    }


def _check_has_agent(suite: Suite, name: str, run: RunConfig) -> None:
    """Exit with an error if no game has this scripted agent."""
    kind = name.removeprefix(SCRIPTED)
    places = (make_env(place_of(game, run)) for game in suite.games)
    if kind != name and not any(kind in available_agents(env) for env in places):
        raise _has_none(suite, name)


def _has_none(suite: Suite, name: str) -> typer.Exit:
    return fail(f"no game of the suite {suite.name} has {name}", BAD_USAGE)


def _suite(source: str, given: dict[str, Any], options: PlayOptions) -> Suite:
    """The suite, checked."""
    settings, _ = split_settings(given)
    if settings:
        raise fail(
            f"a suite fixes the settings of its games; leave out {next(iter(settings))}", BAD_USAGE
        )
    if options.rollouts_per_task is not None:
        raise fail("a suite fixes the rollouts of a task; leave out --rollouts-per-task", BAD_USAGE)
    suite = load_suite(source)
    if options.trust:
        import_from_here(*(game.env for game in suite.games))
    else:
        check_names(suite)
    return suite


def _play(
    suite: Suite,
    model: str,
    run: RunConfig,
    options: PlayOptions,
    output: Path | None,
    *,
    other: bool = False,
) -> list[Played | None]:
    """What the model played of each game."""
    with options.load(model, place_of(suite.games[0], run), other=other) as player:
        played = play_suite(
            suite,
            player,
            seed=options.seed,
            most_tasks=options.episodes,
            output=output,
            on_game=lambda name: tell(f"{suite.name}: {name}"),
        )
    if not any(played):
        raise _has_none(suite, model)
    for game, one in zip(suite.games, played, strict=True):
        _tell_failures(game.name, () if one is None else one.rollouts)
    return played


def _tell_failures(game: str, rollouts: Sequence[Rollout]) -> None:
    failed = [rollout for rollout in rollouts if rollout.failed]
    if failed:
        reason = str(failed[0].error).strip().splitlines()[-1]
        tell(f"{game}: {len(failed)} of {len(rollouts)} rollouts failed; the first: {reason}")
