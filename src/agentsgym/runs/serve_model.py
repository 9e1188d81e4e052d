"""The server of a model: `agentsgym serve-model`."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.extras import ensure
from agentsgym.generation.factory import make_engine
from agentsgym.generation.models import end_of_turn_ids, positions_of
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.runs.models.load import Use, load_model
from agentsgym.runs.models.pretrained import device_in_use
from agentsgym.runs.models.served import ModelWeights, plain
from agentsgym.runs.settings import TINY, ModelSettings
from agentsgym.types.names import ConfigError

_UNBOUNDED = 131_072
"""The context of a model that names no longest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What is served, and where.

    Args:
        model: the model.
        name: its name for clients.
        host: where to listen.
        port: 0 takes a free one.
        key: what clients must send; None if nothing, which needs a host of loopback.
        capacity: requests that are sampled at once.
        max_model_len: the most tokens of context and answer; None: what the model has.
        threads: torch's threads; None: its default.
        trust: whether the base model of an adapter may be in any directory.
    """

    model: ModelSettings
    name: str
    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = None
    capacity: int = 64
    max_model_len: int | None = None
    threads: int | None = None
    trust: bool = False


def serve_model(
    options: ServeOptions, started: Callable[[str], None] = lambda address: None
) -> None:
    """Serve until the process is interrupted. `started` gets the address when clients can connect.

    Raises ConfigError for a model that cannot be loaded and for a host that others reach without a
    key, MissingExtra without the extra `endpoint`, OSError if the port is taken.
    """
    ensure("uvicorn", "endpoint")
    from agentsgym.generation.serving.listening import (
        LOOPBACK,
        Guard,
        check_host,
        listen_and_serve,
    )
    from agentsgym.generation.serving.thread import server_config

    check_host(options.host, options.key)
    app, batcher = application(options)
    with closing(batcher):
        guarded = Guard(app, loopback=options.host in LOOPBACK, token=None)
        listen_and_serve(server_config(guarded), options.host, options.port, started)


def application(options: ServeOptions) -> tuple[Any, Any]:
    """The application, and the thread in which its engine samples."""
    from agentsgym.generation.serving.app import create_app
    from agentsgym.generation.serving.batcher import Batcher
    from agentsgym.generation.serving.engine import EngineBackend
    from agentsgym.generation.serving.vllm_api import VLLMApi

    engine = _engine(options)
    weights = ModelWeights(engine, options.name)
    batcher = Batcher(engine, weights.select)
    backend = EngineBackend(batcher, _facts(options, engine), engine.tokenizer, options.key)
    return create_app(backend, routes=VLLMApi(backend, weights).routes()), batcher


def _engine(options: ServeOptions) -> Any:
    """The engine of this process over the model, on a GPU if there is one."""
    import torch

    if options.model.path == TINY:
        raise ConfigError("model: 'tiny' is made by a training; name the directory of a model")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = device_in_use()
    policy = load_model(options.model, Use(training=False, device=device, trust=options.trust))
    model = plain(policy.model).to(device).eval()
    parts = EngineParts(model=lambda: model, tokenizer=lambda: policy.tokenizer)
    return make_engine(EngineSettings(capacity=options.capacity), parts, training=False)


def _facts(options: ServeOptions, engine: Any) -> Any:
    from agentsgym.generation.serving.engine import ModelFacts

    model = engine.model
    longest = positions_of(model.config.get_text_config()) or _UNBOUNDED
    return ModelFacts(
        name=options.name,
        root=options.model.path,
        max_model_len=min(longest, options.max_model_len or longest),
        stop_token_ids=end_of_turn_ids(engine.tokenizer, model),
        device=engine.device.type,
        dtype=str(model.dtype).removeprefix("torch."),
    )
