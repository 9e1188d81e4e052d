"""`agentsgym presets`."""

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.table import Table

from agentsgym.cli.console import BAD_USAGE, fail, out, shown


def presets(
    name: Annotated[
        str | None, typer.Argument(metavar="[PRESET]", help="Print this preset's YAML.")
    ] = None,
) -> None:
    """List the presets of `agentsgym train`: training runs that are part of the package.

    With a name, print that preset, for instance to start your own file from it:

        agentsgym presets quickstart > my-run.yaml
    """
    from agentsgym.runs.config_sources import presets as known

    texts = known()
    if name is None:
        _list_presets(texts)
    elif name in texts:
        typer.echo(texts[name], nl=False)
    else:
        raise fail(f"no preset is called {name!r}; the presets are: {', '.join(texts)}", BAD_USAGE)


def _list_presets(texts: Mapping[str, str]) -> None:
    from agentsgym.runs.overrides import load_yaml

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("preset", no_wrap=True)
    table.add_column("environment", no_wrap=True)
    table.add_column("description")
    for name, text in texts.items():
        data = load_yaml(text, f"preset {name!r}")
        table.add_row(name, str(data.get("env")), shown(str(data.get("description", ""))))
    out.print(table)
    out.print("\nRun one with [bold]agentsgym train PRESET[/].")
