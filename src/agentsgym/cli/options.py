"""Arguments and options that several commands have."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from agentsgym.cli.console import BAD_USAGE, fail
from agentsgym.runs.sources import merge

SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings of the environment; values are YAML. engine.KEY and model.KEY are settings "
        "of engine and model.",
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


def split_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`KEY=VALUE` arguments as the settings of the environment, and those of the sections `engine`
    and `model` of a run (`engine.urls=…`, `model.path=…`)."""
    sections = {key: value for key, value in given.items() if _is_of_section(key)}
    return {key: given[key] for key in given if key not in sections}, merge({}, sections)


def _is_of_section(key: str) -> bool:
    head, dot, _ = key.partition(".")
    return key == "engine" or (bool(dot) and head in ("engine", "model"))
