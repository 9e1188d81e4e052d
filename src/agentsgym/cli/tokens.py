"""`agentsgym tokens`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agentsgym.checks.token_report import TokenReport
from agentsgym.checks.tokens import check_tokens
from agentsgym.cli.command import AsJson, Command, Settings, Trust, given_settings
from agentsgym.cli.console import FAILURE, out, quiet_libraries, shown
from agentsgym.cli.players import evaluated_run
from agentsgym.envs import ConfigError
from agentsgym.runs import RunConfig
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.from_config import make_env, rendering
from agentsgym.runs.models import Use, load_tokenizer
from agentsgym.runs.settings import CHAT, SCRIPTED

_TALK = "agentsgym.checks.tokens.ScriptedTalk"


class Tokens(Command):
    """Say how a tokenizer and its chat template treat a conversation of several turns.

    Scripted conversations are played without a model: is everything one row, or where and why does
    the template begin a new one; are the masks exact; can a text forge a turn.

    Exit status 0: fit for training; 1: not fit; 2: there is no such tokenizer.

    Examples:

        agentsgym tokens builtin:quickstart

        agentsgym tokens Qwen/Qwen3-0.6B model.chat_template_kwargs.enable_thinking=false

        agentsgym tokens my-model model.chat_template=training --json
    """

    model: Annotated[str, typer.Argument(metavar="MODEL_OR_TOKENIZER")]
    """A directory with a model or only a tokenizer, a run directory, a hub name or builtin:NAME."""
    settings: Settings
    env: Annotated[str | None, typer.Option("--env", "-e")] = None
    """Also play an episode of this environment."""
    as_json: AsJson
    trust: Trust

    def __call__(self) -> None:
        run = self._run()
        quiet_libraries()
        # The report says more than the warnings do.
        with _without_warnings("agentsgym.tokens.codec"):
            report = _report(run)
        if self.as_json:
            typer.echo(report.to_json())
        else:
            out.print(_table(self.model, report))
        if report.problems:
            raise typer.Exit(FAILURE)

    def _run(self) -> RunConfig:
        """The tokenizer's settings and the environment, as an evaluation takes them."""
        model, env = self.model, self.env
        given = given_settings(self.settings, ("env_config", "model"))
        if model.startswith((SCRIPTED, CHAT)):
            raise ConfigError(f"{model} has no tokenizer of its own; name its model directory")
        bare = env is None and not RunDirectory(Path(model)).is_run()
        if bare and any(key.startswith("env_config") for key in given):
            raise ConfigError("name the environment of these settings with --env")
        return evaluated_run(model, _TALK if bare else env, given, trust=self.trust)


def _report(run: RunConfig) -> TokenReport:
    use = Use(training=False, device="cpu", trust=run.train.trust is True)
    tokenizer = load_tokenizer(run.model, use)
    env = None if run.env == _TALK else make_env(run)
    return check_tokens(tokenizer, rendering(run.model, tokenizer), env)


@contextmanager
def _without_warnings(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _table(model: str, report: TokenReport) -> Table:
    table = Table(title=shown(model), title_justify="left", show_header=False, box=None)
    table.add_column(style="bold", min_width=14, max_width=20)
    table.add_column(overflow="fold")
    for topic, sentence in report.lines():
        table.add_row(shown(topic), shown(sentence))
    return table
