"""`agentsgym eval --suite`: plays a suite and prints its tables."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentsgym.cli.console import BAD_USAGE, FAILURE, fail, out, quiet_libraries
from agentsgym.cli.engine_options import tell
from agentsgym.cli.evaluated_run import evaluated_run
from agentsgym.cli.evaluating import PlayOptions, plain_data
from agentsgym.cli.options import split_settings
from agentsgym.envs.user_code import import_from_here

if TYPE_CHECKING:
    from agentsgym.evaluation import SuiteFigures
    from agentsgym.types import Rollout


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
    """Let the model play the suite, print its figures, and write them to `page`."""
    quiet_libraries()
    from agentsgym.cli.suite_tables import suite_tables

    found = _play(source, model, given, options, output)
    data = {"model": model, **plain_data(found)}
    if output is not None:
        from agentsgym.runs.files.evaluation import write_comparison

        write_comparison(output / "suite.json", data)
    if page is not None:
        from agentsgym.report.suite_page import write_suite_page

        write_suite_page(page, model, found, _told(options))
        tell(f"Page: {page}")
    if as_json:
        typer.echo(json.dumps(data, indent=2, allow_nan=False))
    else:
        for table in suite_tables(model, found):
            out.print(table)
    if all(game.failures == game.played for game in found.games):
        raise fail("every rollout failed", FAILURE)


def _told(options: PlayOptions) -> dict[str, str | int | float | None]:
    """How the model played, for readers of the page."""
    from agentsgym import __version__

    return {
        "seed": options.seed,
        "temperature": options.temperature,
        "tasks of a game, at most": options.episodes,
        "agentsgym": __version__,
    }


def _play(
    source: str, model: str, given: dict[str, Any], options: PlayOptions, output: Path | None
) -> "SuiteFigures":
    from agentsgym.evaluation import suite_figures
    from agentsgym.runs.suites import check_names, load_suite, place_of, play_suite

    settings, _ = split_settings(given)
    if settings:
        raise fail(
            f"a suite fixes the settings of its games; leave out {next(iter(settings))}", BAD_USAGE
        )
    if options.rollouts_per_task is not None:
        raise fail("a suite fixes the rollouts of a task; leave out --rollouts-per-task", BAD_USAGE)
    suite = load_suite(source)
    import_from_here(*options.allowed.names)
    check_names(suite, options.allowed)
    run = place_of(
        suite.games[0],
        options.apply(evaluated_run(model, suite.games[0].env, given, options.allowed)),
    )
    with options.load(model, run) as player:
        played = play_suite(
            suite,
            player,
            seed=options.seed,
            most_tasks=options.episodes,
            output=output,
            on_game=lambda name: tell(f"{suite.name}: {name}"),
        )
    if not any(played):
        raise fail(f"no game of the suite {suite.name} has {model}", BAD_USAGE)
    for game, one in zip(suite.games, played, strict=True):
        _tell_failures(game.name, () if one is None else one.rollouts)
    return suite_figures(suite, played, complete=options.episodes is None)


def _tell_failures(game: str, rollouts: "Sequence[Rollout]") -> None:
    failed = [rollout for rollout in rollouts if rollout.failed]
    if failed:
        reason = str(failed[0].error).strip().splitlines()[-1]
        tell(f"{game}: {len(failed)} of {len(rollouts)} rollouts failed; the first: {reason}")
