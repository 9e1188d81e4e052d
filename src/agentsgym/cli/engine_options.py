"""The options that select the engine for an evaluated model."""

from typing import Annotated, Any

import typer

from agentsgym.cli.console import err, shown
from agentsgym.envs import ConfigError
from agentsgym.generation.endpoint import ask, is_url
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs import RunConfig
from agentsgym.types.settings import read

CHAT, SCRIPTED = "chat:", "agent:"
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
    run: RunConfig,
    model: str,
    engine: str | None,
    base_urls: list[str] | None,
    served_model: str | None,
    key_env: str | None,
) -> EngineSettings:
    """The engine settings of `run`, for MODEL `model`; an option takes the place of its key in the
    section `engine`. If MODEL is an address, the model of `run` becomes what is served there."""
    given = run.engine
    path = run.model.path
    engine = engine or given.name or ("chat" if path.startswith(CHAT) else None)
    urls = base_urls or given.urls
    served_model = served_model or given.served_model
    if engine == "chat" or urls:
        served_model = served_model or path.removeprefix(CHAT) or None
    chosen = _with(given, name=engine, urls=urls, served_model=served_model)
    if key_env:
        chosen = _with(chosen, key_env=key_env)
    return at_endpoint(run, model, chosen) if is_url(model) else chosen


def _with(engine: EngineSettings, **values: Any) -> EngineSettings:
    """The settings with other values, which are checked. Raises ConfigError."""
    return read(EngineSettings, engine.model_dump() | values, "engine.")


def at_endpoint(run: RunConfig, url: str, chosen: EngineSettings) -> EngineSettings:
    """The engine settings where MODEL is the address `url`; sets the model of `run` to what is
    served there. A vLLM server whose tokenizer is known is asked with token ids, anything else by
    chat.

    Raises ConfigError, NothingThere if nothing answers, and MissingKey.
    """
    if chosen.urls or chosen.launch:
        raise ConfigError(f"{url} already says where the model is; leave the other servers out")
    found = ask(url, chosen.key_env)
    served = chosen.served_model or next(iter(found.names), None)
    if served is None:
        raise ConfigError(f"{url} lists no models; name one with --served-model")
    tokenizer = found.folder if run.model.path == url else run.model.path
    by_ids = chosen.name == "vllm" or (chosen.name is None and found.is_vllm)
    if by_ids and tokenizer is not None:
        tell(f"{served} at a vLLM server, with the tokenizer of {tokenizer}")
        run.model = run.model.model_copy(update={"path": tokenizer})
        return _with(chosen, name="vllm", urls=[found.url], served_model=served)
    if chosen.name == "vllm":
        raise ConfigError(f"the tokenizer of {served} is not here; name it: model.path=DIRECTORY")
    hint = "; model.path=DIRECTORY names its tokenizer, for exact token ids" if by_ids else ""
    tell(f"{served} at a chat endpoint{hint}")
    run.model = run.model.model_copy(update={"path": f"{CHAT}{served}"})
    return _with(chosen, name="chat", urls=[url], served_model=served)


def tell(text: str) -> None:
    """Print what is being waited for, such as servers that start."""
    err.print(shown(text), style="yellow")
