"""Arguments and options that several commands have."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from agentsgym.cli.console import BAD_USAGE, fail
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.sources import merge, parse_overrides

SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings of the environment; values are YAML. engine.KEY, model.KEY and "
        "answerer.KEY are settings of engine, model and answerer.",
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="The same, as a repeated option."),
]


TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Take the directories and files named here as your own: import the code, and use the "
        "files and servers that they name.",
    ),
]


def given_settings(*groups: Iterable[str] | None) -> dict[str, Any]:
    """The settings of arguments and options `KEY=VALUE`, of which the last of a key holds.

    Raises ConfigError for one of another form.
    """
    return parse_overrides(pair for group in groups for pair in group or ())


def split_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`KEY=VALUE` arguments as the settings of the environment, and those of the sections `engine`,
    `model` and `answerer` of a run (`engine.urls=…`, `model.path=…`)."""
    more = {key: value for key, value in given.items() if _is_of_section(key)}
    return {key: given[key] for key in given if key not in more}, merge({}, more)


def _is_of_section(key: str) -> bool:
    head, dot, _ = key.partition(".")
    return key == "engine" or (bool(dot) and head in ("engine", "model", "answerer"))


def model_with(section: Mapping[str, Any], given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The section `model` for an evaluation of the model `path`, with the user's own settings."""
    return {**section, "path": path, **(given.get("model") or {})}


def model_in(run: RunDirectory) -> Path:
    """The trained model of a run, or its newest checkpoint if training is not finished."""
    if run.model.is_dir():
        return run.model
    checkpoint = run.last_checkpoint()
    if checkpoint is None:
        raise fail(f"{run.root} contains neither a model nor a checkpoint yet", BAD_USAGE)
    return checkpoint[1]
