"""The command line: the `agentsgym` program, its commands and their help."""

import importlib
import os
from contextvars import ContextVar
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from agentsgym.cli.console import ended_by, out

COMMANDS = {
    "train": "Train an agent with GRPO and evaluate it before and after.",
    "eval": "Evaluate a model or a scripted agent on an environment's held-out tasks.",
    "play": "Play an environment yourself, or watch an agent.",
    "view": "Look at a run in the browser: curves, conversations, every token with its numbers.",
    "doctor": "Name what goes wrong in a run, with the numbers that show it and what to try.",
    "credit": "Show the credit that each estimator would assign in a run.",
    "export": "Write a run's rollouts as a dataset for supervised or preference training with TRL.",
    "merge": "Write the LoRA adapter of a run and its base model as one plain model directory.",
    "serve": "Serve an environment to the clients of OpenEnv.",
    "serve-model": "Serve a model to the clients of OpenAI and Anthropic, and to trainings.",
    "envs": "List the registered environments, or with a name the settings of one.",
    "check": "Play an environment without a model and report its faults.",
    "tokens": "Say how a tokenizer and its chat template treat a conversation of several turns.",
    "presets": "List the presets of `agentsgym train`: training runs that are part of the package.",
}
"""The commands and the first line of their help. Each is a class in a module of its name, which is
only imported when its command is named."""


class Commands(TyperGroup):
    """The commands, with `--debug` before or after any of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """A command with no more than its line of help."""
        return TyperCommand(name, help=COMMANDS[name]) if name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, loaded."""
        if args[0] not in COMMANDS:
            return super().resolve_command(ctx, args)
        return args[0], loaded(args[0]), args[1:]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remove `--debug`, which may stand anywhere before a `--`."""
        end = args.index("--") if "--" in args else len(args)
        debug = "--debug" in args[:end]
        _DEBUG.set(debug or os.environ.get("AGENTSGYM_DEBUG", "") not in ("", "0"))
        rest = [arg for arg in args[:end] if arg != "--debug"] + args[end:]
        return list(super().parse_args(ctx, rest))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn an exception into an exit status."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, _PARSER_ERROR, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            raise ended_by(error, debug=_DEBUG.get()) from None


_DEBUG: ContextVar[bool] = ContextVar("debug", default=False)
# Errors of the command line's parser, which prints them itself.
_PARSER_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
_FORM: dict[str, Any] = {
    "rich_markup_mode": "markdown",
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def loaded(name: str) -> Any:
    """The command of that name with its arguments and options."""
    from agentsgym.cli.command import as_function

    module = importlib.import_module(f"agentsgym.cli.{name.replace('-', '_')}")
    command = getattr(module, name.title().replace("-", ""))
    alone = typer.Typer(**_FORM)
    alone.command(name, help=command.__doc__)(as_function(command))
    return typer.main.get_command(alone)


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
    **_FORM,
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error; may also follow a command."),
    ] = False,
) -> None:
    if version:
        from agentsgym import __version__

        out.print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    app()
