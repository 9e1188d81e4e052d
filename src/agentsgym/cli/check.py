"""`agentsgym check`."""

import math

import typer

from agentsgym.checks.check import check_env
from agentsgym.cli.command import Argument, AsJson, Command, Settings, env_config_of
from agentsgym.cli.console import FAILURE, err, line, shown
from agentsgym.envs import ConfigError
from agentsgym.types import with_modules_of
from agentsgym.types.names import import_from_here
from agentsgym.types.text import docs_page


class Check(Command):
    """Play an environment without a model and report its faults.

    Exit status 0: every check passed; 1: one failed; 2: the environment cannot be made.

    Examples:

        agentsgym check Bandit env_config.arms=3

        agentsgym check my_module.MyEnv --json --seconds 20
    """

    env: Argument[str]
    """A registered name or a dotted path."""
    settings: Settings
    as_json: AsJson
    seconds: float = 60.0
    """About how long to play."""

    def __call__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ConfigError(f"--seconds must be a finite number above 0, got {self.seconds}")
        import_from_here(self.env)
        given, trust = env_config_of(self.settings), with_modules_of(False, self.env)
        try:
            report = check_env(
                self.env, given, budget_seconds=self.seconds, trust=trust, note=_note
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if self.as_json:
            typer.echo(report.to_json())
        else:
            line(report.to_text())
        if not report.passed:
            raise typer.Exit(FAILURE)
        if not self.as_json:
            line(f"If a run of it does not learn, read {docs_page('My game does not learn')}.")


def _note(text: str) -> None:
    err.print(shown(text), soft_wrap=True)
