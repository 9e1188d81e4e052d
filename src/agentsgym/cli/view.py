"""`agentsgym view`: a run or an evaluation in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from agentsgym.cli.console import BAD_USAGE, fail, out
from agentsgym.cli.options import StepsOption, TrustOption, step_range
from agentsgym.report.stored import Source, directories
from agentsgym.report.viewer.file import MOST_ROLLOUTS, write_page


def view(
    run: Annotated[Path, typer.Argument(help="A run directory or an evaluation.")],
    other: Annotated[
        Path | None, typer.Argument(help="Another one, to compare on the same tasks.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write [RUN/view.html].")
    ] = None,
    rollouts: Annotated[
        int, typer.Option(min=0, help="About how many rollouts, 0 for all.")
    ] = MOST_ROLLOUTS,
    steps: StepsOption = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json or model directory [the run's own].")
    ] = None,
    trust: TrustOption = False,
) -> None:
    """Look at a run in the browser: curves, conversations, every token with its numbers.

    The page is one file that needs no network. For a large run it contains a sample of the
    rollouts.

    Examples:

        agentsgym view runs/quickstart

        agentsgym view runs/quickstart runs/longer --out compared.html

        agentsgym view runs/quickstart --steps 200-249 --rollouts 0
    """
    # OTHER of a saved comparison stands left: the page shows right minus left, `eval` MODEL minus
    # OTHER.
    paths = [root for root in (run, other) if root is not None]
    roots = [each for root in paths for each in reversed(directories(root))]
    if len(roots) > 2:
        raise fail(f"{len(roots)} evaluations are too many for a page: name two", BAD_USAGE)
    sources = [Source(root, trust, tokenizer) for root in roots]
    path = output or run / "view.html"
    written = write_page(path, sources, rollouts or None, step_range(steps))
    out.print(f"{path}: {written.rollouts} rollouts, {written.size / 1e6:.1f} MB")
    if written.unread or written.rollouts < written.total:
        out.print("It is a sample of the run; --rollouts and --steps say of what.")
