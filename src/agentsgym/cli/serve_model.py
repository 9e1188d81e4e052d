"""`agentsgym serve-model`: a model behind the APIs of OpenAI, Anthropic and vLLM."""

from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from agentsgym.cli.command import Argument, Command, Trust, setting
from agentsgym.cli.console import out, quiet_libraries
from agentsgym.cli.players import model_in
from agentsgym.envs.extras import ensure
from agentsgym.generation.settings import EngineSettings, read_key
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.serve_model import application, load_engine
from agentsgym.runs.settings import ModelSettings
from agentsgym.types.settings import read


class ServeModel(Command):
    """Serve a model to the clients of OpenAI and Anthropic, and to trainings.

    Clients of OpenAI (Chat Completions and Responses) and of Anthropic (Messages) get answers in
    the model's own chat template, and a training or an evaluation samples from it as from a vLLM
    server (engine.urls). Ctrl-C ends the server.

    Examples:

        agentsgym serve-model runs/quickstart

        agentsgym serve-model HuggingFaceTB/SmolLM2-135M-Instruct --port 8001

        agentsgym serve-model builtin:smollm2 --host 0.0.0.0 --key-env SERVE_KEY
    """

    model: Argument[str]
    """A model directory or hub name, an adapter directory, a run directory, or builtin:NAME."""
    port: int = Field(8000, ge=0, le=65535)
    """0 takes a free one."""
    host: str = "127.0.0.1"
    """Where to listen; another one than loopback needs --key-env."""
    key_env: Annotated[str | None, typer.Option(metavar="NAME")] = None
    """Environment variable with the key clients need."""
    served_model_name: Annotated[str | None, typer.Option(metavar="NAME")] = None
    """The model's name for clients [MODEL]."""
    capacity: int = Field(64, ge=1)
    """Requests that are sampled at once."""
    cache_gib: float | None = setting("engine.cache_gib")
    dtype: str | None = setting("model.dtype")
    max_model_len: int | None = Field(None, ge=2)
    """The most tokens of context and answer [the model's]."""
    threads: int | None = Field(None, ge=1)
    """Number of torch threads."""
    trust: Trust

    def __call__(self) -> None:
        key = read_key(self.key_env)
        ensure("uvicorn", "endpoint")
        from agentsgym.generation.serving.listening import (
            LOOPBACK,
            Guard,
            check_host,
            listen_and_serve,
            server_config,
        )

        check_host(self.host, key)
        run = RunDirectory(Path(self.model))
        path = str(model_in(run)) if run.is_run() else self.model
        settings = read(ModelSettings, {"path": path, "dtype": self.dtype or "auto"}, "model.")
        sampling = {"capacity": self.capacity, "cache_gib": self.cache_gib}
        engine_settings = read(EngineSettings, sampling, "engine.")
        quiet_libraries()
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)
        name = self.served_model_name or self.model
        engine = load_engine(settings, engine_settings, trust=self.trust)
        app, batcher = application(
            engine, name, root=path, key=key, max_model_len=self.max_model_len
        )

        def tell(address: str) -> None:
            out.print(f"{name}: {address}/v1", markup=False, soft_wrap=True)
            out.print(f"{self.capacity} requests at once; Ctrl-C ends the server.")

        guarded = Guard(app, loopback=self.host in LOOPBACK, token=None)
        with closing(batcher), suppress(KeyboardInterrupt):
            listen_and_serve(server_config(guarded), self.host, self.port, tell)
        out.print("ended")
