"""`agentsgym presets`."""

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.padding import Padding

from agentsgym.cli.console import BAD_USAGE, fail, out, shown
from agentsgym.runs.sources import load_yaml
from agentsgym.runs.sources import presets as known

_LINES = {"needs": "needs", "costs": "costs", "run_on": "run on"}


def presets(
    name: Annotated[
        str | None, typer.Argument(metavar="[PRESET]", help="Print this preset's YAML.")
    ] = None,
) -> None:
    """List the presets of `agentsgym train`: training runs that are part of the package.

    With a name, print that preset, for instance to start your own file from it:

        agentsgym presets quickstart > my-run.yaml
    """
    texts = known()
    if name is None:
        _list_presets(texts)
    elif name in texts:
        typer.echo(texts[name], nl=False)
    else:
        raise fail(f"no preset is called {name!r}; the presets are: {', '.join(texts)}", BAD_USAGE)


def _list_presets(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        data = load_yaml(text, f"preset {name!r}")
        environment = shown(str(data.get("env")))
        out.print(f"[bold]{name}[/] ({environment}): {shown(str(data.get('description', '')))}")
        for key, title in _LINES.items():
            if data.get(key):
                out.print(Padding(f"{title}: {shown(str(data[key]))}", (0, 0, 0, 2)))
    out.print(
        "\nRun one with [bold]agentsgym train PRESET[/]; --estimate prints its memory, --dry-run "
        "tries it in small."
    )
