"""`agentsgym export`: a run's rollouts as data for other trainers."""

from pathlib import Path
from typing import Annotated

import typer

from agentsgym.cli.console import BAD_USAGE, err, fail, line, out, quiet_libraries, shown
from agentsgym.cli.options import StepsOption, TrustOption, step_range
from agentsgym.report.export.write import FORMATS, WRITERS, Counts, Filters, write_dataset
from agentsgym.report.stored import Source, directories
from agentsgym.types import import_path

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

    if to not in (*FORMATS, *WRITERS):
        known = ", ".join([*FORMATS, *WRITERS])
        raise fail(f"--to must be one of {known}, not {to!r}", BAD_USAGE)
    filters = Filters(tuple(phase or ()), step_range(steps), min_reward, won, best)
    sides = directories(run)
    if len(sides) > 1:
        raise fail(f"{run} has two evaluations: name {sides[0]} or {sides[1]}", BAD_USAGE)
    source = Source(run, trust)
    if to in WRITERS:
        counts: Counts = import_path(WRITERS[to], trust=True)(source, output, filters)
    else:
        counts = write_dataset(source, FORMATS[to], output, filters)
    for problem in counts.problems:
        err.print(shown(f"{problem}; the rest of this file is left out"), soft_wrap=True)
    many = f"{counts.examples} {counts.called}"
    line(f"{output}: {many} from {counts.rollouts} of {counts.read} rollouts")
    if counts.show:
        line(counts.show)
    if counts.longest > TRL_LENGTH:
        out.print(
            f"The longest row has {counts.longest} tokens; TRL cuts rows off after {TRL_LENGTH} "
            "unless max_length says otherwise."
        )
