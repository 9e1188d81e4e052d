"""The options that select the engine for an evaluated model."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from agentsgym.cli.console import err, shown

if TYPE_CHECKING:
    from agentsgym.generation.factory import Purpose
    from agentsgym.generation.settings import EngineSettings
    from agentsgym.runs import RunConfig

CHAT, SCRIPTED = "chat:", "agent:"
_WRITTEN = {
    "engine": "--engine",
    "engine_urls": "--base-url",
    "served_model": "--served-model",
    "key_env": "--key-env",
}

BaseUrlOption = Annotated[
    list[str] | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="Where MODEL is served: with chat:MODEL an OpenAI-compatible endpoint, else vLLM "
        "servers (may be repeated).",
    ),
]
ServedModelOption = Annotated[
    str | None,
    typer.Option("--served-model", metavar="NAME", help="The model's name there [MODEL]."),
]
KeyEnvOption = Annotated[
    str | None,
    typer.Option(
        "--key-env",
        metavar="VARIABLE",
        help="The environment variable that holds the key for --base-url [none is sent].",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="The engine's name in docs/engines.md, where MODEL and --base-url do not say it.",
    ),
]


def engine_settings(
    run: "RunConfig",
    engine: str | None,
    base_urls: list[str] | None,
    served_model: str | None,
    key_env: str | None,
) -> "EngineSettings":
    """The engine settings of `run`, whose `model.path` is MODEL; an option takes the place of its
    key in the section `engine`."""
    from agentsgym.runs.engine_config import engine_of

    found = engine_of(run.engine, run.train).settings()
    path = run.model.path
    engine = engine or found.engine or ("chat" if path.startswith(CHAT) else None)
    urls = tuple(base_urls or found.engine_urls)
    served_model = served_model or found.served_model
    if engine == "chat" or urls:
        served_model = served_model or path.removeprefix(CHAT) or None
    return replace(
        found,
        engine=engine,
        engine_urls=urls,
        served_model=served_model,
        key_env=key_env or found.key_env,
    )


def tell(text: str) -> None:
    """Print what is being waited for, such as servers that start."""
    err.print(shown(text), style="yellow")


def purpose() -> "Purpose":
    """The purpose "evaluation"; its settings have the names of the options."""
    from agentsgym.generation.factory import Purpose

    return Purpose(training=False, written=lambda key: _WRITTEN.get(key, key))
