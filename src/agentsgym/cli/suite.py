"""`agentsgym eval --suite`: plays several environments and prints one table of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from agentsgym.agents.scripted import available_agents
from agentsgym.cli.console import fail, print_json, print_table, reason, tell
from agentsgym.cli.players import Given, Player
from agentsgym.cli.tables import FINDING, compared, plain_data, share, wide_table
from agentsgym.envs import ConfigError
from agentsgym.evaluation import Comparison, Evaluation, Information, Played, compare, information
from agentsgym.runs import RunConfig
from agentsgym.runs.evaluate import other_references
from agentsgym.runs.files.records import write_record
from agentsgym.runs.from_config import make_env
from agentsgym.runs.players import contestant
from agentsgym.runs.settings import SCRIPTED
from agentsgym.runs.suites import Suite, check_names, load_suite, place_of, play_suite
from agentsgym.types.names import import_from_here

_FIXED = ("env_config", "data", "eval.rollouts")


@dataclass(frozen=True, slots=True)
class GameFigures:
    """One game's evaluation, the mean scores of other players on the tasks that did not fail, and
    the share of the value of information if the environment knows it."""

    evaluation: Evaluation
    other_references: dict[str, float]
    information: Information | None


def evaluate_suite(
    suite: Suite,
    players: Sequence[Player],
    seed: int,
    tasks: int | None,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Let MODEL and those of --vs play the suite, or its first `tasks` of each game; print their
    figures."""
    for player in players:
        _check_has_agent(suite, player)
    folders = ["model", "vs", *(f"vs-{number}" for number in range(2, len(players)))]
    several = len(players) > 1
    first, *second = (
        _play(suite, player, seed, tasks, output and (output / folder if several else output))
        for player, folder in zip(players, folders, strict=False)
    )
    model, *others = (player.name for player in players)
    figures = {name: _figures(suite, players[0].run, name, one) for name, one in first.items()}
    versus = {name: _differences(first, one) for name, one in zip(others, second, strict=True)}
    data = {
        "model": model,
        "suite": suite.name,
        "digest": suite.digest,
        "games": plain_data(figures),
    }
    if versus:
        data["comparisons"] = plain_data(versus)
    if output is not None:
        write_record(output / "suite.json", data)
    if as_json:
        print_json(data)
    else:
        part = ", in part" if tasks is not None else ""
        print_table(suite_table(f"{model} on {suite.name} ({suite.digest}){part}", figures))
        for name, games in versus.items():
            print_table(_comparison(model, name, games))
    for played in (first, *second):
        if all(one.evaluation.failures == one.evaluation.rollouts for one in played.values()):
            raise fail("every rollout failed")


def checked_suite(source: str, given: Given, trust: bool) -> Suite:
    """A suite by its name or file. Raises ConfigError, also for settings that it fixes itself and,
    without `trust`, for code, files and servers that it names."""
    for key in given:
        if key.startswith(_FIXED):
            raise ConfigError(
                f"a suite fixes the settings and rollouts of its games; leave out {key} (--tasks "
                "takes the first tasks of each game)"
            )
    suite = load_suite(source)
    if trust:
        import_from_here(*(game.env for game in suite.games))
    else:
        check_names(suite)
    return suite


def _check_has_agent(suite: Suite, player: Player) -> None:
    """Raise ConfigError if no game has this scripted agent."""
    kind = player.name.removeprefix(SCRIPTED)
    places = (make_env(place_of(game, player.run)) for game in suite.games)
    if kind != player.name and not any(kind in available_agents(env) for env in places):
        raise ConfigError(f"no game of the suite {suite.name} has {player.name}")


def _play(
    suite: Suite, player: Player, seed: int, tasks: int | None, output: Path | None
) -> dict[str, Played]:
    """What the player played, by game."""
    with contestant(player.name, player.run, seed=seed, note=tell) as loaded:
        results = play_suite(
            suite,
            loaded,
            seed=seed,
            most_tasks=tasks,
            output=output,
            on_game=lambda game: tell(f"{suite.name}: {game}"),
        )
    for game, played in results.items():
        failed = [rollout for rollout in played.rollouts if rollout.failed]
        if failed:
            count = f"{len(failed)} of {len(played.rollouts)} rollouts failed"
            tell(f"{game}: {count}; the first: {reason(failed[0].error)}")
    return results


def _figures(suite: Suite, run: RunConfig, name: str, played: Played) -> GameFigures:
    (game,) = (game for game in suite.games if game.name == name)
    live = [rollout for rollout in played.rollouts if not rollout.failed]
    others = other_references(make_env(place_of(game, run)), live)
    return GameFigures(played.evaluation, others, information(played.evaluation, others))


def _differences(
    first: Mapping[str, Played], second: Mapping[str, Played]
) -> dict[str, Comparison]:
    """The paired differences in the games that both played."""
    return {
        name: compare(one.rollouts, second[name].rollouts)
        for name, one in first.items()
        if name in second
    }


# -- tables ----------------------------------------------------------------------------------------


def suite_table(title: str, figures: Mapping[str, GameFigures]) -> Table:
    """A line per game."""
    rows = [(name, *_cells(one)) for name, one in figures.items()]
    heads = ("", "reward", "best", "information", "informs")
    return wide_table(title, heads, rows, list(_notes(figures)))


def _cells(one: GameFigures) -> Iterator[str]:
    figures = one.evaluation
    if figures.failures == figures.rollouts:
        yield from ("failed", "", "", "")
        return
    yield _estimate(figures.reward, figures.reward_ci95)
    yield _two_digits(figures.reference)
    known = one.information
    yield "–" if known is None else _estimate(known.share, known.ci95)
    metrics = figures.metrics
    if "informing/free_shots" in metrics:
        yield f"{metrics['informing/free_shots']:.0%} / {metrics['informing/scored']:.0%}"
    else:
        yield share(metrics.get("informing"))


def _notes(figures: Mapping[str, GameFigures]) -> Iterator[str]:
    yield (
        "95 % intervals in brackets. Best: the best known play on the same tasks. Information: "
        "from the best play without exploring (0) to the best play (1). Informs: share of actions, "
        "free shots / scored."
    )
    failed = {name: one.evaluation for name, one in figures.items() if one.evaluation.failures}
    if failed:
        counts = ", ".join(f"{k} {one.failures} of {one.rollouts}" for k, one in failed.items())
        yield f"rollouts that failed do not count: {counts}"
    malformed = max(one.evaluation.metrics.get("malformed", 0.0) for one in figures.values())
    if malformed:
        yield f"up to {malformed:.0%} of the actions in a game were malformed"


def _comparison(model: str, other: str, games: Mapping[str, Comparison]) -> Table:
    """The rewards of both players in each game, and their paired differences."""
    parts = {name: one for name, one in games.items() if one.pairs}
    rows = [compared(name, one.reward, model, other, "{:.3f}") for name, one in parts.items()]
    notes = ["The same tasks and seeds, first minus second; 95 % intervals in brackets."]
    if left := sum(one.left_out for one in games.values()):
        notes.append(f"{left} left out because a side failed")
    title = f"reward, {model} against {other}"
    return wide_table(title, ("", model, other, "difference", FINDING), rows, notes)


def _estimate(value: float | None, bounds: tuple[float | None, float | None]) -> str:
    low, high = bounds
    text = _two_digits(value)
    return text if low is None or high is None else f"{text} [{low:.2f}, {high:.2f}]"


def _two_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
