"""`agentsgym eval --suite`: plays a suite and prints its tables."""

from pathlib import Path
from typing import Any

from agentsgym import __version__
from agentsgym.cli.console import BAD_USAGE, fail, print_json, quiet_libraries, tell
from agentsgym.cli.options import split_settings
from agentsgym.cli.players import SCRIPTED, PlayOptions
from agentsgym.cli.tables import plain_data, print_tables
from agentsgym.evaluation import Played, Suite, suite_comparison, suite_figures
from agentsgym.report.suite import suite_tables, write_suite_page
from agentsgym.runs import RunConfig
from agentsgym.runs.evaluate import contestant
from agentsgym.runs.files.records import write_record
from agentsgym.runs.from_config import make_env
from agentsgym.runs.scripted_agents import available_agents
from agentsgym.runs.suites import check_names, load_suite, place_of, play_suite
from agentsgym.types.names import import_from_here


def evaluate_suite(
    source: str, given: dict[str, Any], options: PlayOptions, page: Path | None, *, as_json: bool
) -> None:
    """Let the model, and those of --vs, play the suite; print their figures, and write them to
    `page`."""
    quiet_libraries()

    suite = _suite(source, given, options)
    model, others = options.models[0], options.models[1:]
    run = options.first(suite.games[0].env, given)
    runs = {model: run} | {name: options.other(name, run) for name in others}
    for name, its_run in runs.items():
        _check_has_agent(suite, name, its_run)
    folders = ["model", "vs", *(f"vs-{number}" for number in range(2, len(others) + 1))]
    output, complete = options.output, options.episodes is None
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
    if page is not None:
        write_suite_page(page, model, figures, _facts(options), versus)
        tell(f"Page: {page}")
    if as_json:
        print_json(data)
    else:
        print_tables(suite_tables(model, figures, versus))
    for one in (figures, *(other.figures for other in versus)):
        if all(game.failures == game.played for game in one.games):
            raise fail("every rollout failed")


def _suite(source: str, given: dict[str, Any], options: PlayOptions) -> Suite:
    """The suite, checked."""
    for key in split_settings(given)[0]:
        raise fail(f"a suite fixes the settings of its games; leave out {key}", BAD_USAGE)
    if options.rollouts_per_task is not None:
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
            most_tasks=options.episodes,
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


def _facts(options: PlayOptions) -> dict[str, str | int | float | None]:
    """How the model played, for readers of the page."""
    return {
        "seed": options.seed,
        "temperature": options.temperature,
        "tasks of a game, at most": options.episodes,
        "agentsgym": __version__,
    }
