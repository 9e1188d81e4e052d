"""Arguments and options that several commands have."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from agentsgym.runs.sources import merge

SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings of the environment; values are YAML. engine.KEY, model.KEY and "
        "answerer.KEY are settings of engine, model and answerer.",
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A registered environment or the dotted path of a class."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Take the directories and files named here as your own: import the code, and use the "
        "files and servers that they name.",
    ),
]


def split_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`KEY=VALUE` arguments as the settings of the environment, and those of the sections `engine`,
    `model` and `answerer` of a run (`engine.urls=…`, `model.path=…`)."""
    sections = {key: value for key, value in given.items() if _is_of_section(key)}
    return {key: given[key] for key in given if key not in sections}, merge({}, sections)


def _is_of_section(key: str) -> bool:
    head, dot, _ = key.partition(".")
    return key == "engine" or (bool(dot) and head in ("engine", "model", "answerer"))
