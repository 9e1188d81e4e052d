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
    "launch": "engine.launch",
    "command": "engine.command",
    "launch_args": "engine.launch_args",
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
    model: str,
    engine: str | None,
    base_urls: list[str] | None,
    served_model: str | None,
    key_env: str | None,
) -> "EngineSettings":
    """The engine settings of `run`, for MODEL `model`; an option takes the place of its key in the
    section `engine`. If MODEL is an address, the model of `run` becomes what is served there."""
    from agentsgym.generation.endpoint import is_url
    from agentsgym.runs.engine_config import engine_of

    found = engine_of(run.engine, run.train).settings()
    path = run.model.path
    engine = engine or found.engine or ("chat" if path.startswith(CHAT) else None)
    urls = tuple(base_urls or found.engine_urls)
    served_model = served_model or found.served_model
    if engine == "chat" or urls:
        served_model = served_model or path.removeprefix(CHAT) or None
    chosen = replace(
        found,
        engine=engine,
        engine_urls=urls,
        served_model=served_model,
        key_env=key_env or found.key_env,
    )
    return at_endpoint(run, model, chosen) if is_url(model) else chosen


def at_endpoint(run: "RunConfig", url: str, chosen: "EngineSettings") -> "EngineSettings":
    """The engine settings where MODEL is the address `url`; sets the model of `run` to what is
    served there. A vLLM server whose tokenizer is known is asked with token ids, anything else by
    chat.

    Raises ConfigError, NothingThere if nothing answers, and MissingKey.
    """
    from agentsgym.envs import ConfigError
    from agentsgym.generation.endpoint import ask

    if chosen.engine_urls or chosen.launch:
        raise ConfigError(f"{url} already says where the model is; leave the other servers out")
    found = ask(url, chosen.key_env)
    served = chosen.served_model or next(iter(found.names), None)
    if served is None:
        raise ConfigError(f"{url} lists no models; name one with --served-model")
    tokenizer = found.folder if run.model.path == url else run.model.path
    by_ids = chosen.engine == "vllm" or (chosen.engine is None and found.is_vllm)
    if by_ids and tokenizer is not None:
        tell(f"{served} at a vLLM server, with the tokenizer of {tokenizer}")
        run.model = run.model.model_copy(update={"path": tokenizer})
        return replace(chosen, engine="vllm", engine_urls=(found.url,), served_model=served)
    if chosen.engine == "vllm":
        raise ConfigError(f"the tokenizer of {served} is not here; name it: model.path=DIRECTORY")
    hint = "; model.path=DIRECTORY names its tokenizer, for exact token ids" if by_ids else ""
    tell(f"{served} at a chat endpoint{hint}")
    run.model = run.model.model_copy(update={"path": f"{CHAT}{served}"})
    return replace(chosen, engine="chat", engine_urls=(url,), served_model=served)


def tell(text: str) -> None:
    """Print what is being waited for, such as servers that start."""
    err.print(shown(text), style="yellow")


def purpose() -> "Purpose":
    """The purpose "evaluation"; its settings have the names of the options."""
    from agentsgym.generation.factory import Purpose

    return Purpose(training=False, written=lambda key: _WRITTEN.get(key, key))
