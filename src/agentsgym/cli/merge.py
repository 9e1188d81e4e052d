"""`agentsgym merge`: a run's adapter and its base model as one plain model."""

from pathlib import Path
from typing import Annotated

import typer

from agentsgym.cli.command import Argument, Command, Trust
from agentsgym.cli.console import out, quiet_libraries, shown
from agentsgym.runs.models import merge_adapter


class Merge(Command):
    """Write the LoRA adapter of a run and its base model as one plain model directory.

    Any program that reads Hugging Face models can load the result, vLLM for instance.

    Examples:

        agentsgym merge runs/my-run

        agentsgym merge runs/my-run --output my-model
    """

    run: Argument[Path]
    """A run directory, or an adapter directory."""
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None
    """The directory to write [RUN/merged]."""
    trust: Trust

    def __call__(self) -> None:
        quiet_libraries()

        written = merge_adapter(self.run, self.output, trust=self.trust)
        out.print(f"The merged model is in [bold]{shown(str(written))}[/].")
