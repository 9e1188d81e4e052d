"""Arguments and options that several commands have."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

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
BaseUrlOption = Annotated[
    list[str] | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="engine.urls: where the model is served; with chat:MODEL an OpenAI-compatible "
        "endpoint, else vLLM servers (may be repeated).",
    ),
]
ServedModelOption = Annotated[
    str | None,
    typer.Option(
        "--served-model", metavar="NAME", help="engine.served_model: its name there [MODEL]."
    ),
]
KeyEnvOption = Annotated[
    str | None,
    typer.Option(
        "--key-env",
        metavar="VARIABLE",
        help="engine.key_env: the environment variable with the key for --base-url [none is sent].",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="engine.name, where MODEL and --base-url do not say it (docs/engines.md).",
    ),
]


def engine_options(
    name: str | None, urls: list[str] | None, served_model: str | None, key_env: str | None
) -> dict[str, Any]:
    """The options of an engine as `KEY=VALUE` settings."""
    given = {"name": name, "urls": urls, "served_model": served_model, "key_env": key_env}
    return {f"engine.{key}": value for key, value in given.items() if value}


def given_settings(*groups: Iterable[str] | None) -> dict[str, Any]:
    """The settings of arguments and options `KEY=VALUE`, of which the last of a key holds.

    Raises ConfigError for one of another form.
    """
    return parse_overrides(pair for group in groups for pair in group or ())


def split_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`KEY=VALUE` arguments as the settings of the environment, and those of the sections `engine`,
    `model` and `answerer` of a run (`engine.urls=…`, `model.path=…`)."""
    sections = {key: value for key, value in given.items() if _is_of_section(key)}
    return {key: given[key] for key in given if key not in sections}, merge({}, sections)


def _is_of_section(key: str) -> bool:
    head, dot, _ = key.partition(".")
    return key == "engine" or (bool(dot) and head in ("engine", "model", "answerer"))
