"""`agentsgym presets`."""

from collections.abc import Mapping

import typer
from rich.padding import Padding

from agentsgym.cli.command import Argument, Command
from agentsgym.cli.console import out, shown
from agentsgym.envs import ConfigError
from agentsgym.runs.sources import load_yaml
from agentsgym.runs.sources import presets as known


class Presets(Command):
    """List the presets of `agentsgym train`: training runs that are part of the package.

    With a name, print that preset, for instance to start your own file from it:

        agentsgym presets quickstart > my-run.yaml
    """

    preset: Argument[str | None] = None
    """Print this preset's YAML."""

    def __call__(self) -> None:
        texts = known()
        if self.preset is None:
            _list_presets(texts)
        elif self.preset in texts:
            typer.echo(texts[self.preset], nl=False)
        else:
            raise ConfigError(
                f"no preset is called {self.preset!r}; the presets are: {', '.join(texts)}"
            )


def _list_presets(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        data = load_yaml(text, f"preset {name!r}")
        environment = shown(str(data.get("env")))
        out.print(f"[bold]{name}[/] ({environment}): {shown(str(data.get('description', '')))}")
        for key in ("needs", "costs", "run_on"):
            if data.get(key):
                text = f"{key.replace('_', ' ')}: {shown(str(data[key]))}"
                out.print(Padding(text, (0, 0, 0, 2)))
    out.print(
        "\nRun one with [bold]agentsgym train PRESET[/]; --estimate prints its memory, --dry-run "
        "tries it in small."
    )
