"""`agentsgym check`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from agentsgym.checks.check import check_env
from agentsgym.cli.command import Argument, AsJson, Command, Settings, env_config_of
from agentsgym.cli.console import FAILURE, err, line, shown
from agentsgym.envs import ConfigError
from agentsgym.envs.dataset import TaskFile
from agentsgym.types import with_modules_of
from agentsgym.types.names import import_from_here
from agentsgym.types.text import docs_page, short_repr


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
        tasks = _tasks_of(self.tasks) if self.tasks else []
        given, trust = env_config_of(self.settings), with_modules_of(False, self.env)
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


def _tasks_of(path: Path) -> list[Mapping[str, Any]]:
    try:
        rows = list(TaskFile(path))
    except OSError as error:
        raise ConfigError(f"--tasks: {path} cannot be read: {error.strerror}") from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ConfigError(f"--tasks: {path}, line {number}: no task, {short_repr(row)}")
    return [row.get("task_data", row) for row in rows]


def _note(text: str) -> None:
    err.print(shown(text), soft_wrap=True)
