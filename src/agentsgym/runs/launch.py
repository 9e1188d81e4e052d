"""How a run is launched over processes and machines, and the combinations that cannot work.

Everything here is known without a GPU, a server or another machine.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from agentsgym.envs import ConfigError
from agentsgym.generation.factory import choose
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs.from_config import train_settings
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.sources import load_yaml
from agentsgym.training.settings import RaySettings

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

_HARDWARE = ("tf32", "deepspeed", "fsdp", "fsdp_config")
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Launch:
    """The learners of a run: `processes` in all, on `machines`; `sharded` is what splits the
    model's parameters over them, None if each has the whole model."""

    processes: int = 1
    machines: int = 1
    sharded: str | None = None

    @property
    def per_machine(self) -> int:
        """Processes on one machine."""
        return -(-self.processes // self.machines)


def on_any_machine(config: RunConfig) -> RunConfig:
    """The configuration without what needs a GPU or a server, to fill in all other settings."""
    train = {key: value for key, value in config.train.items() if key not in _HARDWARE}
    plain = {"dtype": "float32", "quantization": None, "attn_implementation": None}
    changes: dict[str, Any] = {
        "train": {**train, "use_cpu": True},
        "model": config.model.model_copy(update=plain),
        "engine": EngineSettings(capacity=config.engine.capacity),
        "ray": RaySettings(),
        "answerer": None,
    }
    return config.model_copy(update=changes)


def sampling_place(config: RunConfig) -> Literal["here", "process", "servers"]:
    """What samples: the process that trains, a process of its own beside it, or servers."""
    engine = config.engine
    if engine.urls or engine.launch:
        return "servers"
    if engine.name in (None, "embedded", "plain"):
        return "here"
    return "process" if engine.name == "process" else "servers"


def read_launch(path: Path) -> Launch:
    """The launch that a configuration file of accelerate describes. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    data = load_yaml(path.read_bytes(), str(path))
    processes = _count(data, "num_processes", path)
    machines = _count(data, "num_machines", path)
    if processes % machines:
        raise ConfigError(
            f"{path}: num_processes is {processes}, which {machines} machines cannot share equally"
        )
    return Launch(processes, machines, _sharding(data))


def _count(data: dict[str, Any], key: str, path: Path) -> int:
    value = data.get(key, 1)
    if type(value) is not int or value < 1:
        raise ConfigError(f"{path}: {key} must be a number from 1, got {value!r}")
    return value


def _sharding(data: dict[str, Any]) -> str | None:
    kind = str(data.get("distributed_type", "NO")).upper()
    options = data.get(f"{kind.lower()}_config")
    given = options if isinstance(options, dict) else {}
    if kind == "DEEPSPEED":
        return "DeepSpeed ZeRO-3" if given.get("zero_stage") == 3 else None
    if kind == "FSDP" and given.get("fsdp_sharding_strategy") != "NO_SHARD":
        return f"FSDP{given.get('fsdp_version', 1)}"
    return None


def check_launch(config: RunConfig, launch: Launch) -> "GRPOEnvConfig":
    """The trainer's settings over all processes. Raises ConfigError for what cannot work with this
    launch."""
    settings = _settings_over_all(config, launch)
    _check_sharding(config, launch)
    _check_servers(config, launch)
    _check_ahead(config, settings)
    return settings


def _settings_over_all(config: RunConfig, launch: Launch) -> "GRPOEnvConfig":
    """The settings as they are with the rollouts of all processes in one."""
    from agentsgym.training import GRPOEnvConfig

    name = "per_device_train_batch_size"
    own = config.train.get(name, GRPOEnvConfig.per_device_train_batch_size)
    if launch.processes == 1 or type(own) is not int:
        return train_settings(on_any_machine(config))
    train = {**config.train, name: own * launch.processes}
    try:
        return train_settings(on_any_machine(config.model_copy(update={"train": train})))
    except ConfigError as error:
        raise ConfigError(
            f"over {launch.processes} processes, whose {own} rollouts each are {train[name]} "
            f"together: {error}"
        ) from None


def _check_sharding(config: RunConfig, launch: Launch) -> None:
    if launch.sharded is None:
        return
    if sampling_place(config) != "servers":
        raise ConfigError(
            f"{launch.sharded} splits the model over {launch.processes} processes, and the "
            "embedded engine samples from the whole model; name vLLM servers in engine.urls and "
            "use FSDP2, or use DeepSpeed ZeRO-2"
        )
    if launch.sharded != "FSDP2":
        raise ConfigError(
            f"{launch.sharded} splits the model over {launch.processes} processes, and vLLM "
            "servers get whole weights only from FSDP2; use that or DeepSpeed ZeRO-2"
        )


def _check_servers(config: RunConfig, launch: Launch) -> None:
    engine = config.engine
    choose(engine, training=True)
    twice = [url for url, number in Counter(engine.urls).items() if number > 1]
    if twice:
        raise ConfigError(f"engine.urls names {twice[0]} twice")
    if launch.machines == 1:
        return
    if engine.launch:
        raise ConfigError(
            f"engine.launch starts servers on one machine, and the learners are on "
            f"{launch.machines}; start the servers and name them in engine.urls"
        )
    for url in engine.urls:
        if urlsplit(url).hostname in _LOCAL:
            raise ConfigError(
                f"engine.urls: {url} is another server on each of the {launch.machines} machines; "
                "name the host of the server"
            )


def _check_ahead(config: RunConfig, settings: "GRPOEnvConfig") -> None:
    if settings.max_staleness and sampling_place(config) == "here":
        raise ConfigError(
            f"train.max_staleness={settings.max_staleness} needs an engine that samples beside the "
            "optimizer: name vLLM servers in engine.urls, let the run start them (engine.launch), "
            "or set engine.name to 'process'"
        )
