"""`agentsgym serve-model`: a model behind the APIs of OpenAI, Anthropic and vLLM."""

from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from agentsgym.cli.console import out, quiet_libraries
from agentsgym.cli.options import TrustOption
from agentsgym.cli.players import model_in
from agentsgym.envs.extras import ensure
from agentsgym.generation.settings import EngineSettings, read_key
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.serve_model import application, load_engine
from agentsgym.runs.settings import ModelSettings
from agentsgym.types.settings import read


def serve_model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model directory or hub name, an adapter directory, a run directory, or "
            "builtin:NAME.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Where to listen; another one than loopback needs --key-env.")
    ] = "127.0.0.1",
    key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the key clients need."),
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model's name for clients [MODEL].")
    ] = None,
    capacity: Annotated[int, typer.Option(min=1, help="Requests that are sampled at once.")] = 64,
    cache_gib: Annotated[
        float | None,
        typer.Option(help="GiB that keys and values take, as engine.cache_gib [most free memory]."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="auto, float32, bfloat16 or float16, as model.dtype.")
    ] = "auto",
    max_model_len: Annotated[
        int | None,
        typer.Option(min=2, help="The most tokens of context and answer [the model's]."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of torch threads.")] = None,
    trust: TrustOption = False,
) -> None:
    """Serve a model to the clients of OpenAI and Anthropic, and to trainings.

    Clients of OpenAI (Chat Completions and Responses) and of Anthropic (Messages) get answers in
    the model's own chat template, and a training or an evaluation samples from it as from a vLLM
    server (engine.urls). Ctrl-C ends the server.

    Examples:

        agentsgym serve-model runs/quickstart

        agentsgym serve-model HuggingFaceTB/SmolLM2-135M-Instruct --port 8001

        agentsgym serve-model builtin:smollm2 --host 0.0.0.0 --key-env SERVE_KEY
    """
    key = read_key(key_env)
    ensure("uvicorn", "endpoint")
    from agentsgym.generation.serving.listening import (
        LOOPBACK,
        Guard,
        check_host,
        listen_and_serve,
        server_config,
    )

    check_host(host, key)
    run = RunDirectory(Path(model))
    path = str(model_in(run)) if run.is_run() else model
    settings = read(ModelSettings, {"path": path, "dtype": dtype}, "model.")
    sampling = read(EngineSettings, {"capacity": capacity, "cache_gib": cache_gib}, "engine.")
    quiet_libraries()
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    name = served_model_name or model
    engine = load_engine(settings, sampling, trust=trust)
    app, batcher = application(engine, name, root=path, key=key, max_model_len=max_model_len)

    def tell(address: str) -> None:
        out.print(f"{name}: {address}/v1", markup=False, soft_wrap=True)
        out.print(f"{capacity} requests at once; Ctrl-C ends the server.")

    guarded = Guard(app, loopback=host in LOOPBACK, token=None)
    with closing(batcher), suppress(KeyboardInterrupt):
        listen_and_serve(server_config(guarded), host, port, tell)
    out.print("ended")
