"""`agentsgym export`: a run's rollouts as data for other trainers."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from agentsgym.cli.command import Argument, Command, Several, Steps, Trust, step_range
from agentsgym.cli.console import line, out, quiet_libraries, tell
from agentsgym.envs import ConfigError
from agentsgym.report.export.write import FORMATS, WRITERS, Counts, Filters, write_dataset
from agentsgym.report.stored import Source, directories
from agentsgym.types import import_path

TRL_LENGTH = 1024
"""Where TRL cuts a row off unless `max_length` says otherwise."""


class Export(Command):
    """Write a run's rollouts as a dataset for supervised or preference training with TRL.

    --to inspect writes its evaluations as logs that `inspect view` shows.

    Examples:

        agentsgym export runs/quickstart --to tokens --won --out won

        agentsgym export runs/quickstart --to preference --steps 100-249 --out pairs.parquet

        agentsgym export runs/quickstart --to inspect --out logs
    """

    run: Argument[Path]
    """A run directory or an evaluation."""
    to: Annotated[str, typer.Option(metavar="FORMAT")]
    """messages, tokens, preference, or inspect."""
    out: Annotated[Path, typer.Option("--out", "-o")]
    """A new folder, or a file FILE.parquet or FILE.jsonl."""
    phase: Several
    """before, train, eval, after, …; may be repeated [train]."""
    steps: Steps
    min_reward: float | None = None
    """Only rollouts with at least this reward."""
    won: bool = False
    """Only rollouts that were won."""
    best: int | None = Field(None, ge=1)
    """So many rollouts of each group, the best."""
    trust: Trust

    def __call__(self) -> None:
        quiet_libraries()
        counts = self._written()
        for problem in counts.problems:
            tell(f"{problem}; the rest of this file is left out")
        many = f"{counts.examples} {counts.called}"
        line(f"{self.out}: {many} from {counts.rollouts} of {counts.read} rollouts")
        if counts.show:
            line(counts.show)
        if counts.longest > TRL_LENGTH:
            out.print(
                f"The longest row has {counts.longest} tokens; TRL cuts rows off after "
                f"{TRL_LENGTH} unless max_length says otherwise."
            )

    def _written(self) -> Counts:
        if self.to not in (*FORMATS, *WRITERS):
            known = ", ".join([*FORMATS, *WRITERS])
            raise ConfigError(f"--to must be one of {known}, not {self.to!r}")
        steps = step_range(self.steps)
        filters = Filters(tuple(self.phase), steps, self.min_reward, self.won, self.best)
        sides = directories(self.run)
        if len(sides) > 1:
            raise ConfigError(f"{self.run} has two evaluations: name {sides[0]} or {sides[1]}")
        source = Source(self.run, self.trust)
        if self.to in FORMATS:
            return write_dataset(source, FORMATS[self.to], self.out, filters)
        write = import_path(WRITERS[self.to], trust=True)
        counts: Counts = write(source, self.out, filters)
        return counts
