"""`agentsgym credit`: the credit that estimators assign to a run's rollouts."""

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from agentsgym.cli.console import BAD_USAGE, fail, out, print_json, print_table, shown
from agentsgym.cli.effects import measure_and_print
from agentsgym.cli.options import TrustOption
from agentsgym.credit import find_estimator
from agentsgym.report.credit import RECORDED, StepCredit, compare_credit
from agentsgym.report.stored import Source
from agentsgym.runs.branches import Where
from agentsgym.runs.trust import import_stored
from agentsgym.types import Rollout
from agentsgym.types.names import is_foreign

_LONGEST = 120


def credit(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    step: Annotated[
        int | None, typer.Option(help="Optimizer step whose generation to show [the last].")
    ] = None,
    group: Annotated[
        int | None,
        typer.Option(min=0, help="Which group of the generation [the first; with --replay all]."),
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator",
            "-e",
            help="Estimators to show [the run's and the unbiased ones; with --json all].",
        ),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Measure what actions were worth, by playing on from them."),
    ] = False,
    plays: Annotated[
        int, typer.Option(min=2, help="With --replay: plays from each state, with common noise.")
    ] = 16,
    budget: Annotated[
        int,
        typer.Option(min=1, help="With --replay: steps of the environment; then no action begins."),
    ] = 20_000,
    where: Annotated[
        Where, typer.Option(help="With --replay: at random, or the least likely actions first.")
    ] = "random",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    trust: TrustOption = False,
) -> None:
    """Show the credit that each estimator would assign in a run.

    It needs no model and plays no episode: credit is computed from the recorded steps. A function
    of your own is an estimator too: -e my_module.my_function.

    With --replay the run's model plays on from the states before and after its actions, which shows
    what each was worth, and how far each estimator's credit agrees. The plays are kept in the run:
    the same command goes on, also with a larger --budget.

    Examples:

        agentsgym credit runs/quickstart

        agentsgym credit runs/quickstart --step 40 --group 3 -e grpo -e step_return --json

        agentsgym credit runs/explore --replay --budget 5000
    """
    source = Source(Path(run), trust)
    used = source.estimator
    default = [name for name in RECORDED if as_json or name == used or _unbiased(name)]
    names = tuple(estimator or sorted(default, key=lambda name: name != used))
    import_stored([*names, used or ""], source.root)
    if not estimator and used and is_foreign(used):
        with suppress(ValueError):  # its module may be elsewhere
            find_estimator(used)
            names = (used, *names)
    chosen, members = _generation(source, step)
    groups = sorted({rollout.group for rollout in members})
    if group is not None and group not in groups:
        raise fail(f"the generation at step {chosen} has groups 0 to {max(groups)}", BAD_USAGE)
    if group is not None or not replay:
        members = [one for one in members if one.group == (group or groups[0])]
    try:
        lines = compare_credit(members, names)
    except ValueError as error:
        raise fail(str(error), BAD_USAGE) from None
    if replay:
        options: dict[str, Any] = {"plays": plays, "budget": budget, "where": where}
        measure_and_print(
            source.root, chosen, members, lines, **options, as_json=as_json, trust=trust
        )
    elif as_json:
        print_json([dataclasses.asdict(line) for line in lines])
    else:
        _print(lines, names, used)


def _unbiased(name: str) -> bool:
    return find_estimator(name).variants[0].error == 0.0


def _generation(source: Source, step: int | None) -> tuple[int, list[Rollout]]:
    """The step of a generation, and its rollouts."""
    run = source.root
    generations = {one.step: one for one in source.sets() if one.phase == "train"}
    if not generations:
        raise fail(f"{run} contains no training rollouts", BAD_USAGE)
    chosen = max(generations) if step is None else step
    if chosen not in generations:
        known = ", ".join(map(str, sorted(generations)[:8]))
        raise fail(f"{run} has no generation at step {chosen}; it has {known}, …", BAD_USAGE)
    contents = generations[chosen].read()
    if contents.problem or not contents.lines:
        raise fail(contents.problem or f"the generation at step {chosen} has no rollouts")
    return chosen, [line.rollout for line in contents.lines]


def _print(lines: list[StepCredit], names: tuple[str, ...], used: str | None) -> None:
    several = any(line.episode for line in lines)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("step", "action", "reward", *names):
        # A long name is broken after its underscore, so that the numbers stay side by side.
        heading = name if name == "action" else name.replace("_", "_\n")
        left = name in ("step", "action")
        table.add_column(
            heading, justify="left" if left else "right", no_wrap=name != "action", vertical="top"
        )
    before: int | None = None
    for line in lines:
        if line.rollout != before:
            table.add_row("", f"[bold]rollout {line.rollout}{' (failed)' * line.failed}[/bold]")
        before = line.rollout
        place = f"{line.episode}.{line.step}" if several else str(line.step)
        values = (f"{line.credit[name]:+.3f}" for name in names)
        table.add_row(place, _short(line.action), f"{line.reward:.4g}", *values)
    out.print("Credit per step" + " (episode.step)" * several + ":")
    print_table(table)
    if used is not None:
        out.print(shown(f"The run was trained with {used}."))
    out.print("agentsgym view shows the same token by token, in the browser.")


def _short(action: str) -> str:
    """An action on a few lines of a narrow column."""
    text = " ".join(action.split())
    return shown(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
