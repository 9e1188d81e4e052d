"""`agentsgym merge`: a run's adapter and its base model as one plain model."""

from pathlib import Path
from typing import Annotated

import typer

from agentsgym.cli.console import out, quiet_libraries, shown
from agentsgym.cli.options import TrustOption
from agentsgym.runs.models import merge_adapter


def merge(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory, or an adapter directory.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The directory to write [RUN/merged].")
    ] = None,
    trust: TrustOption = False,
) -> None:
    """Write the LoRA adapter of a run and its base model as one plain model directory.

    Any program that reads Hugging Face models can load the result, vLLM for instance.

    Examples:

        agentsgym merge runs/my-run

        agentsgym merge runs/my-run --output my-model
    """
    quiet_libraries()

    written = merge_adapter(run, output, trust=trust)
    out.print(f"The merged model is in [bold]{shown(str(written))}[/].")
