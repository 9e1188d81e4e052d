"""`agentsgym check`."""

import json
import math
from typing import Annotated, Any

import typer

from agentsgym.checks.check import check_env
from agentsgym.envs.config import ConfigError
from agentsgym.envs.extras import MissingExtra
from agentsgym.envs.registry import UnknownEnvironment
from agentsgym.envs.user_code import import_from_here
from agentsgym.types.secrets import mask_secrets
from agentsgym.types.visible import visible


def check(
    env: Annotated[str, typer.Argument(help="A registered name or a dotted path.")],
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", help="A setting as KEY=VALUE (VALUE is JSON, else text)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seconds: Annotated[float, typer.Option(help="About how long to play.")] = 60.0,
) -> None:
    """Play an environment without a model and report its faults.

    Exit status 0: every check passed; 1: one failed; 2: the environment cannot be made.
    """
    import_from_here(env)
    try:
        if not 0 < seconds < math.inf:
            raise ValueError(f"--seconds must be a finite number above 0, got {seconds}")
        module = env.rpartition(".")[0]
        report = check_env(
            env, settings(config or []), budget_seconds=seconds, allow_imports=[module]
        )
    except (ConfigError, MissingExtra, UnknownEnvironment, ValueError) as error:
        message = visible(mask_secrets(" ".join(str(error).split())))
        typer.echo(f"error: {message}", err=True)
        raise typer.Exit(2) from None
    typer.echo(report.to_json() if as_json else visible(report.to_text()))
    raise typer.Exit(0 if report.passed else 1)


def settings(pairs: list[str]) -> dict[str, Any]:
    """`env_config` from KEY=VALUE pairs. Raises ValueError for one without `=`."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"a setting has the form KEY=VALUE, got {pair!r}")
        found[key.strip()] = _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
