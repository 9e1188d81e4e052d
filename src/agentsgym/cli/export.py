"""`agentsgym export`: a run's rollouts as data for other trainers."""

from pathlib import Path
from typing import Annotated

import typer

from agentsgym.cli.console import BAD_USAGE, err, fail, line, out, quiet_libraries, shown
from agentsgym.cli.options import StepsOption, TrustOption, step_range
from agentsgym.report.export.write import FORMATS, Counts, Filters, write_dataset
from agentsgym.report.stored import Source, directories

INSPECT = "inspect"
TRL_LENGTH = 1024
"""Where TRL cuts a row off unless `max_length` says otherwise."""


def export(
    run: Annotated[Path, typer.Argument(help="A run directory or an evaluation.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="messages, tokens, preference, or inspect.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--out", "-o", help="A new folder, or a file FILE.parquet or FILE.jsonl."),
    ],
    phase: Annotated[
        list[str] | None,
        typer.Option(help="before, train, eval, after, …; may be repeated [train]."),
    ] = None,
    steps: StepsOption = None,
    min_reward: Annotated[
        float | None, typer.Option(help="Only rollouts with at least this reward.")
    ] = None,
    won: Annotated[bool, typer.Option("--won", help="Only rollouts that were won.")] = False,
    best: Annotated[
        int | None, typer.Option(min=1, help="So many rollouts of each group, the best.")
    ] = None,
    trust: TrustOption = False,
) -> None:
    """Write a run's rollouts as a dataset for supervised or preference training with TRL.

    --to inspect writes its evaluations as logs that `inspect view` shows.

    Examples:

        agentsgym export runs/quickstart --to tokens --won --out won

        agentsgym export runs/quickstart --to preference --steps 100-249 --out pairs.parquet

        agentsgym export runs/quickstart --to inspect --out logs
    """
    quiet_libraries()

    if to not in (*FORMATS, INSPECT):
        known = ", ".join([*FORMATS, INSPECT])
        raise fail(f"--to must be one of {known}, not {to!r}", BAD_USAGE)
    filters = Filters(tuple(phase or ()), step_range(steps), min_reward, won, best)
    sides = directories(run)
    if len(sides) > 1:
        raise fail(f"{run} has two evaluations: name {sides[0]} or {sides[1]}", BAD_USAGE)
    source = Source(run, trust)
    if to == INSPECT:
        _write_logs(source, output, filters)
    else:
        _tell_dataset(write_dataset(source, FORMATS[to], output, filters), output)


def _write_logs(source: Source, folder: Path, filters: Filters) -> None:
    from agentsgym.integrations.inspect.log import write_logs

    logs = write_logs(source, folder, filters)
    _tell_problems(logs.problems)
    line(f"{folder}: {logs.examples} logs of {logs.rollouts} rollouts")
    line(f"inspect view --log-dir {folder}")


def _tell_dataset(counts: Counts, path: Path) -> None:
    _tell_problems(counts.problems)
    line(f"{path}: {counts.examples} examples from {counts.rollouts} of {counts.read} rollouts")
    if counts.longest > TRL_LENGTH:
        out.print(
            f"The longest row has {counts.longest} tokens; TRL cuts rows off after {TRL_LENGTH} "
            "unless max_length says otherwise."
        )


def _tell_problems(problems: list[str]) -> None:
    for problem in problems:
        err.print(shown(f"{problem}; the rest of this file is left out"), soft_wrap=True)
