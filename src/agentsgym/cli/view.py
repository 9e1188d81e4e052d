"""`agentsgym view`: a run or an evaluation in the browser."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from agentsgym.cli.command import Argument, Command, Steps, Trust, step_range
from agentsgym.cli.console import out
from agentsgym.envs import ConfigError
from agentsgym.report.stored import Source, directories
from agentsgym.report.viewer.file import MOST_ROLLOUTS, write_page


class View(Command):
    """Look at a run in the browser: curves, conversations, every token with its numbers.

    The page is one file that needs no network. For a large run it contains a sample of the
    rollouts.

    Examples:

        agentsgym view runs/quickstart

        agentsgym view runs/quickstart runs/longer --out compared.html

        agentsgym view runs/quickstart --steps 200-249 --rollouts 0
    """

    run: Argument[Path]
    """A run directory or an evaluation."""
    other: Argument[Path | None] = None
    """Another one, to compare on the same tasks."""
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None
    """The file to write [RUN/view.html]."""
    rollouts: int = Field(MOST_ROLLOUTS, ge=0)
    """About how many rollouts, 0 for all."""
    steps: Steps
    tokenizer: Path | None = None
    """A tokenizer.json or model directory [the run's own]."""
    trust: Trust

    def __call__(self) -> None:
        # OTHER of a saved comparison stands left: the page shows right minus left, `eval` MODEL
        # minus OTHER.
        paths = [root for root in (self.run, self.other) if root is not None]
        roots = [each for root in paths for each in reversed(directories(root))]
        if len(roots) > 2:
            raise ConfigError(f"{len(roots)} evaluations are too many for a page: name two")
        sources = [Source(root, self.trust, self.tokenizer) for root in roots]
        path = self.out or self.run / "view.html"
        written = write_page(path, sources, self.rollouts or None, step_range(self.steps))
        out.print(f"{path}: {written.rollouts} rollouts, {written.size / 1e6:.1f} MB")
        if written.unread or written.rollouts < written.total:
            out.print("It is a sample of the run; --rollouts and --steps say of what.")
