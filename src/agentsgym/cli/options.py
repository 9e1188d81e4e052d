"""Arguments and options that several commands have."""

import difflib
import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import typer

from agentsgym.cli.console import BAD_USAGE, fail
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.sources import merge, parse_overrides
from agentsgym.types.names import ConfigError, unknown_key

SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings by their dotted keys in a run, such as env_config.KEY; values are YAML.",
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A registered environment or the dotted path of a class."),
]
StepsOption = Annotated[
    str | None, typer.Option(metavar="N[-M]", help="Only training step N, or from N to M.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Use the files, servers and links that a directory names outside of itself; of a "
        "suite also code.",
    ),
]


def step_range(steps: str | None) -> tuple[int, int] | None:
    """The first and the last step of --steps."""
    if steps is None:
        return None
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", steps)
    if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
        raise fail(f"--steps must be N or N-M with N up to M, not {steps!r}", BAD_USAGE)
    return int(match[1]), int(match[2] or match[1])


def option_of(key: str) -> Any:
    """An option that is a setting of a run: the setting's description is its help."""
    section, _, name = key.rpartition(".")
    fields = RunConfig.model_fields
    if section:
        fields = fields[section].annotation.model_fields  # type: ignore[union-attr]
    return typer.Option(help=f"{fields[name].description} [{key}]", show_default=False)


def given_settings(
    arguments: Sequence[str] | None, sections: Collection[str] = RunConfig.model_fields
) -> dict[str, Any]:
    """`KEY=VALUE` arguments by their dotted keys. Raises ConfigError for a key that is no setting
    of a run, or in none of the `sections` that have an effect in this command."""
    given = parse_overrides(arguments or ())
    for key in given:
        head = key.partition(".")[0]
        if head not in RunConfig.model_fields:
            if difflib.get_close_matches(head, RunConfig.model_fields):
                raise ConfigError(unknown_key(head, RunConfig.model_fields))
            raise ConfigError(
                f"unknown key {key!r}; a setting of the environment is env_config.{key}"
            )
        if not {head, key} & set(sections):
            raise ConfigError(f"{key} has no effect here; settings are {', '.join(sections)}")
    return given


def env_config_of(arguments: Sequence[str] | None) -> dict[str, Any]:
    """The `env_config` of a command that has no other settings."""
    settings: dict[str, Any] = merge({}, given_settings(arguments, ["env_config"]))
    return settings.get("env_config") or {}
