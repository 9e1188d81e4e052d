"""`agentsgym view`: a run or an evaluation in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from agentsgym.cli.console import BAD_USAGE, fail, out
from agentsgym.cli.options import TrustOption
from agentsgym.report.stored import Source, directories
from agentsgym.report.viewer.file import MOST_ROLLOUTS, write_page
from agentsgym.report.viewer.library import Library
from agentsgym.report.viewer.server import PageServer


def view(
    run: Annotated[Path, typer.Argument(help="A run directory or an evaluation.")],
    other: Annotated[
        Path | None, typer.Argument(help="Another one, to compare on the same tasks.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write [RUN/view.html].")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve every rollout on this machine instead.")
    ] = False,
    rollouts: Annotated[
        int | None, typer.Option(min=0, help="Rollouts in the file, 0 for all [1000].")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json or model directory [the run's own].")
    ] = None,
    trust: TrustOption = False,
) -> None:
    """Look at a run in the browser: curves, conversations, every token with its numbers.

    The page is one file that needs no network. For a large run it contains a sample of the
    rollouts; --serve shows all of them, also while the run goes on.

    Examples:

        agentsgym view runs/quickstart

        agentsgym view runs/quickstart runs/longer --out compared.html

        agentsgym view runs/quickstart --serve
    """
    if serve and (output is not None or rollouts is not None):
        raise fail("--serve writes no file: leave --out and --rollouts away", BAD_USAGE)

    # OTHER of a saved comparison stands left: the page shows right minus left, `eval` MODEL minus
    # OTHER.
    paths = [root for root in (run, other) if root is not None]
    roots = [each for root in paths for each in reversed(directories(root))]
    if len(roots) > 2:
        raise fail(f"{len(roots)} evaluations are too many for a page: name two", BAD_USAGE)
    sources = [Source(root, trust, tokenizer) for root in roots]
    if serve:
        _serve(sources)
    else:
        _write(sources, output or run / "view.html", rollouts)


def _write(sources: list[Source], path: Path, rollouts: int | None) -> None:
    most = MOST_ROLLOUTS if rollouts is None else rollouts
    written = write_page(path, sources, most or None)
    out.print(f"{path}: {written.rollouts} rollouts, {written.size / 1e6:.1f} MB")
    if written.unread or written.rollouts < written.total:
        out.print("It is a sample of the run; --rollouts N takes more, --serve shows all.")


def _serve(sources: list[Source]) -> None:
    with PageServer(Library(sources)) as server:
        out.print(server.address, soft_wrap=True)
        out.print("Open it in a browser of this machine; Ctrl-C ends the server.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            out.print("ended")
