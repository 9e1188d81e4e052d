"""How a run is launched over processes and machines, and the combinations that cannot work.

Everything here is known without a GPU, a server or another machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentsgym.envs import ConfigError
from agentsgym.generation.factory import choose
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs.from_config import train_settings
from agentsgym.runs.settings import RunConfig
from agentsgym.training.settings import RaySettings

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

_SHARED_BY = ("deepspeed", "fsdp", "fsdp_config")
_HARDWARE = ("tf32", *_SHARED_BY)
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Launch:
    """The learners of a run: `processes` in all, on `machines`."""

    processes: int = 1
    machines: int = 1


def on_any_machine(config: RunConfig) -> RunConfig:
    """The configuration without what needs a GPU or a server, to fill in all other settings."""
    train = {key: value for key, value in config.train.items() if key not in _HARDWARE}
    plain = {"dtype": "float32", "quantization": None, "attn_implementation": None}
    changes: dict[str, Any] = {
        "train": {**train, "use_cpu": True},
        "model": config.model.model_copy(update=plain),
        "engine": EngineSettings(capacity=config.engine.capacity),
        "ray": RaySettings(),
        "distributed": "ddp",
    }
    return config.model_copy(update=changes)


def check_launch(config: RunConfig, launch: Launch) -> "GRPOEnvConfig":
    """The trainer's settings with the rollouts of all processes in one. Raises ConfigError for what
    cannot work with this launch."""
    from agentsgym.training import GRPOEnvConfig

    name = "per_device_train_batch_size"
    own = config.train.get(name, GRPOEnvConfig.per_device_train_batch_size)
    together = own * launch.processes if type(own) is int else own
    train = {**config.train, name: together}
    try:
        settings = train_settings(on_any_machine(config.model_copy(update={"train": train})))
    except ConfigError as error:
        if launch.processes == 1:
            raise
        raise ConfigError(
            f"over {launch.processes} processes, whose {own} rollouts each are {together} "
            f"together: {error}"
        ) from None
    check_processes(config, launch, settings)
    return settings


def check_processes(config: RunConfig, launch: Launch, settings: "GRPOEnvConfig") -> None:
    """Raise ConfigError for a model, an engine or servers that cannot work with this launch."""
    for problem in _problems(config, launch, settings):
        raise ConfigError(problem)


def _problems(config: RunConfig, launch: Launch, settings: "GRPOEnvConfig") -> Iterator[str]:
    engine, entry = config.engine, choose(config.engine, training=True)
    if launch.processes % launch.machines:
        yield f"{launch.machines} machines cannot share {launch.processes} processes equally"
    if config.distributed == "fsdp2" and launch.processes > 1 and not entry.remote:
        yield (
            f"distributed: fsdp2 splits the model over {launch.processes} processes, and the "
            "embedded engine samples from the whole model; name vLLM servers in engine.urls, or "
            "set distributed: zero2"
        )
    for key in _SHARED_BY:
        if config.distributed != "ddp" and config.train.get(key):
            yield f"distributed: {config.distributed} sets train.{key}; leave one of them out"
    for url in engine.urls:
        if engine.urls.count(url) > 1:
            yield f"engine.urls names {url} twice"
        if launch.machines > 1 and urlsplit(url).hostname in _LOCAL:
            yield (
                f"engine.urls: {url} is another server on each of the {launch.machines} machines; "
                "name the host of the server"
            )
    if launch.machines > 1 and engine.launch:
        yield (
            "engine.launch starts servers on one machine, and the learners are on "
            f"{launch.machines}; start the servers and name them in engine.urls"
        )
    if settings.max_staleness and not entry.remote:
        yield (
            f"train.max_staleness={settings.max_staleness} needs an engine that samples beside the "
            "optimizer: name servers in engine.urls, or let the run start them (engine.launch; on "
            "a CPU with engine.command=serve-model)"
        )
