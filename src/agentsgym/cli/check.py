"""`agentsgym check`."""

import math
from typing import Annotated

import typer

from agentsgym.checks.check import check_env
from agentsgym.cli.console import BAD_USAGE, FAILURE, err, fail, line, shown
from agentsgym.cli.options import JsonOption, SettingsArgument, env_config_of
from agentsgym.envs import ConfigError
from agentsgym.types import with_modules_of
from agentsgym.types.names import import_from_here
from agentsgym.types.text import docs_page


def check(
    env: Annotated[str, typer.Argument(help="A registered name or a dotted path.")],
    settings: SettingsArgument = None,
    as_json: JsonOption = False,
    seconds: Annotated[float, typer.Option(help="About how long to play.")] = 60.0,
) -> None:
    """Play an environment without a model and report its faults.

    Exit status 0: every check passed; 1: one failed; 2: the environment cannot be made.

    Examples:

        agentsgym check Bandit env_config.arms=3

        agentsgym check my_module.MyEnv --json --seconds 20
    """
    if not 0 < seconds < math.inf:
        raise fail(f"--seconds must be a finite number above 0, got {seconds}", BAD_USAGE)
    import_from_here(env)
    given = env_config_of(settings)
    trust = with_modules_of(False, env)
    try:
        report = check_env(env, given, budget_seconds=seconds, trust=trust, note=_note)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if as_json:
        typer.echo(report.to_json())
    else:
        line(report.to_text())
    if not report.passed:
        raise typer.Exit(FAILURE)
    if not as_json:
        line(f"If a run of it does not learn, read {docs_page('My game does not learn')}.")


def _note(text: str) -> None:
    err.print(shown(text), soft_wrap=True)
