"""`agentsgym check`."""

import math
from pathlib import Path
from typing import Any

import typer

from agentsgym.checks.check import check_env
from agentsgym.cli.command import Argument, AsJson, Command, Settings, env_config_of
from agentsgym.cli.console import FAILURE, err, line, shown
from agentsgym.envs import ConfigError, EnvPool, MultistepEnv, check_rows, make
from agentsgym.envs.dataset import TaskFile, own_tasks
from agentsgym.types import with_modules_of
from agentsgym.types.names import import_from_here
from agentsgym.types.text import docs_page


class Check(Command):
    """Play an environment without a model and report its faults.

    Exit status 0: every check passed; 1: one failed; 2: the environment cannot be made.

    Examples:

        agentsgym check Bandit env_config.arms=3

        agentsgym check my_module.MyEnv --json --seconds 20

        agentsgym check my_module.MyEnv --tasks tasks.jsonl
    """

    env: Argument[str]
    """A registered name or a dotted path."""
    settings: Settings
    as_json: AsJson
    seconds: float = 60.0
    """About how long to play."""
    tasks: Path | None = None
    """A file of tasks to play as well, one JSON object per line, as data.train of a run."""

    def __call__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ConfigError(f"--seconds must be a finite number above 0, got {self.seconds}")
        import_from_here(self.env)
        given, trust = env_config_of(self.settings), with_modules_of(False, self.env)
        tasks = (
            _tasks_of(self.tasks, make(self.env, None, given, trust=trust)) if self.tasks else []
        )
        try:
            report = check_env(
                self.env,
                given,
                tasks=tasks,
                budget_seconds=self.seconds,
                trust=trust,
                note=_note,
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


def _tasks_of(path: Path, env: MultistepEnv) -> list[dict[str, Any]]:
    try:
        rows = TaskFile(path, env)
    except OSError as error:
        raise ConfigError(f"--tasks: {path} cannot be read: {error.strerror}") from None
    if problems := check_rows(rows, EnvPool(None, envs=[env])):
        raise ConfigError(f"--tasks: {path}: {problems[0]}")
    return own_tasks(env, rows)


def _note(text: str) -> None:
    err.print(shown(text), soft_wrap=True)
