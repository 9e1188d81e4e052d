"""The command line: the `agentsgym` program, its commands and their help."""

import typer

from agentsgym.cli.check import check
from agentsgym.cli.credit import credit
from agentsgym.cli.doctor import doctor
from agentsgym.cli.envs import envs
from agentsgym.cli.evaluate import evaluate
from agentsgym.cli.export import export
from agentsgym.cli.guard import Commands
from agentsgym.cli.merge import merge
from agentsgym.cli.play import play
from agentsgym.cli.presets import presets
from agentsgym.cli.serve import serve
from agentsgym.cli.tokens import tokens
from agentsgym.cli.train import train
from agentsgym.cli.view import view

app = typer.Typer(
    name="agentsgym",
    cls=Commands,
    help="""Train language-model agents that learn within a task.

An agent plays multi-turn text environments; agentsgym records which tokens it chose and what each
step earned, and trains it with GRPO.

Start here:

    agentsgym train quickstart      train a small model on Twenty Questions (minutes, two cores)

    agentsgym play TwentyQuestions  play it yourself

    agentsgym eval runs/quickstart  evaluate what was trained
""",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(train)
app.command(name="eval")(evaluate)
app.command()(play)
app.command()(view)
app.command()(doctor)
app.command()(credit)
app.command()(export)
app.command()(merge)
app.command()(serve)
app.command()(envs)
app.command()(check)
app.command()(tokens)
app.command()(presets)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    debug: bool = typer.Option(
        False, "--debug", help="Show the traceback of an error; may also follow a command."
    ),
) -> None:
    if version:
        from agentsgym import __version__
        from agentsgym.cli.console import out

        out.print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    app()
