"""`agentsgym credit`: the credit that each estimator would assign to a run's rollouts."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.table import Table

from agentsgym.cli.console import BAD_USAGE, fail, out, shown
from agentsgym.report.credit import RECORDED, StepCredit, compare_credit
from agentsgym.runs.files import RunDirectory, read_file
from agentsgym.types import Rollout

_LONGEST = 120


def credit(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    step: Annotated[
        int | None, typer.Option(help="Optimizer step whose generation to show [the last].")
    ] = None,
    group: Annotated[int, typer.Option(min=0, help="Which group of the generation.")] = 0,
    estimator: Annotated[
        list[str] | None, typer.Option("--estimator", "-e", help="Estimators to show [all].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Show the credit that each estimator would assign to the rollouts of a run.

    It needs no model and plays no episode: credit is computed from the recorded steps.

    Examples:

        agentsgym credit runs/quickstart

        agentsgym credit runs/quickstart --step 40 --group 3 -e grpo -e step_return --json
    """
    names = tuple(estimator or RECORDED)
    members = _group(run, step, group)
    try:
        lines = compare_credit(members, names)
    except ValueError as error:
        raise fail(str(error), BAD_USAGE) from None
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(line) for line in lines], allow_nan=False))
    else:
        _print(lines, names)


def _group(run: Path, step: int | None, group: int) -> list[Rollout]:
    """The rollouts of one group of one generation."""
    if not run.is_dir():
        raise fail(f"there is no directory {run}", BAD_USAGE)
    shards: dict[int, list[Path]] = {}
    for phase, at, path in RunDirectory(run).rollout_files():
        if phase == "train":
            shards.setdefault(at, []).append(path)
    if not shards:
        raise fail(f"{run} contains no training rollouts", BAD_USAGE)
    chosen = max(shards) if step is None else step
    if chosen not in shards:
        known = ", ".join(map(str, sorted(shards)[:8]))
        raise fail(f"{run} has no generation at step {chosen}; it has {known}, …", BAD_USAGE)
    members = [line.rollout for path in shards[chosen] for line in read_file(path, group)]
    return members or _no_group(shards[chosen], chosen)


def _no_group(shards: list[Path], step: int) -> NoReturn:
    groups = [line.rollout.group for path in shards for line in read_file(path)]
    if not groups:
        raise fail(f"{shards[0]} contains no rollouts")
    raise fail(f"the generation at step {step} has groups 0 to {max(groups)}", BAD_USAGE)


def _print(lines: list[StepCredit], names: tuple[str, ...]) -> None:
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
    out.print(table)
    out.print("agentsgym view shows the same token by token, in the browser.")


def _short(action: str) -> str:
    """An action on a few lines of a narrow column."""
    text = " ".join(action.split())
    return shown(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
