"""The section `engine` of a run: what samples the actions, and where it runs."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from agentsgym.envs import ConfigError
from agentsgym.generation.settings import EngineSettings
from agentsgym.training import setting_parsers

TRL = "trl_vllm"
ENDPOINT_KEYS = ("urls", "served_model", "key_env", "capacity")
"""The keys of a section that names one chat endpoint."""
MOST_SERVERS = 1024

# Keys of the section and the fields of GRPOEnvConfig that they set.
_OF_TRAIN = {
    "name": "engine",
    "urls": "engine_urls",
    "served_model": "engine_served_model",
    "key_env": "engine_key_env",
    "capacity": "engine_capacity",
    "launch": "engine_launch",
    "command": "engine_command",
    "launch_args": "engine_launch_args",
    "mode": "vllm_mode",
}
_ENGINE_FIELDS = {*_OF_TRAIN.values(), "use_vllm"}
# Keys of the section and the fields of EngineSettings that they set, for messages.
_OF_SETTINGS = {
    "name": "engine",
    "urls": "engine_urls",
    "mode": "use_vllm",
    "capacity": "engine_capacity",
}


class EngineConfig(BaseModel):
    """The engine of a run. In a file, a plain string is its `name`.

    `name` is one of the table in docs/engines.md; None lets the other keys choose. `urls` are
    running vLLM servers or a chat endpoint, `served_model` the model's name there (None: the
    servers' first), `key_env` the environment variable that holds their key (None sends none).
    `capacity` is the number of sessions sampled at once. `launch` is the number of vLLM servers
    that the run starts and ends itself, by `command` (a vllm executable, or the Python of an
    environment that has vLLM; None: this environment's vllm); `launch_args` are more arguments of
    `vllm serve`. `mode` is that of TRL's own vLLM.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str | None = Field(default=None, min_length=1)
    urls: list[str] = Field(default_factory=list)
    served_model: str | None = Field(default=None, min_length=1)
    key_env: str | None = Field(default=None, min_length=1)
    capacity: int | None = Field(default=None, ge=1)
    launch: int = Field(default=0, ge=0, le=MOST_SERVERS)
    command: str | None = Field(default=None, min_length=1)
    launch_args: list[str] = Field(default_factory=list)
    mode: Literal["colocate", "server"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_string_is_the_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else {} if given is None else given

    @field_validator("urls", "launch_args", mode="before")
    @classmethod
    def _list(cls, given: Any, info: ValidationInfo) -> list[str]:
        return setting_parsers.texts(str(info.field_name), given)

    @model_validator(mode="after")
    def _modes(self) -> "EngineConfig":
        if self.mode is not None and self.name not in (None, TRL):
            raise ValueError(f"mode belongs to the engine {TRL!r}, not to {self.name!r}")
        if self.is_trl and self.urls and (self.mode == "colocate" or len(self.urls) > 1):
            raise ValueError(f"{TRL!r} takes one URL, that of `trl vllm-serve`, with mode server")
        return self

    @property
    def is_trl(self) -> bool:
        """Whether TRL's own vLLM samples."""
        return self.name == TRL or self.mode is not None

    @property
    def reaches_out(self) -> bool:
        """Whether it names servers, commands or keys."""
        return bool(self.urls or self.key_env or self.launch)

    def settings(self) -> EngineSettings:
        """The same for the factory of engines."""
        return EngineSettings(
            engine=self.name,
            engine_urls=() if self.is_trl else tuple(self.urls),
            use_vllm=self.is_trl,
            engine_capacity=self.capacity,
            served_model=self.served_model,
            key_env=self.key_env,
            launch=self.launch,
            command=self.command,
            launch_args=tuple(self.launch_args),
        )

    def train_fields(self) -> dict[str, Any]:
        """The same as fields of `GRPOEnvConfig`; keys that are not set are left out."""
        values = {field: getattr(self, key) for key, field in _OF_TRAIN.items()}
        found = {field: value for field, value in values.items() if value}
        if self.is_trl:
            found["use_vllm"] = True
            if urls := found.pop("engine_urls", None):
                found |= {"vllm_mode": "server", "vllm_server_base_url": urls[0]}
        return found


def written(key: str) -> str:
    """How the section calls a field of `EngineSettings`, for messages."""
    names = {field: name for name, field in _OF_SETTINGS.items()}
    return f"engine.{names.get(key, key)}"


def with_engine(train: Mapping[str, Any], engine: EngineConfig) -> dict[str, Any]:
    """`train` with the fields that the section sets. Raises ConfigError for a field that both set,
    to different values."""
    found = engine.train_fields()
    for field, value in found.items():
        if train.get(field, value) != value:
            keys = {name: key for key, name in _OF_TRAIN.items()}
            raise ConfigError(
                f"engine.{keys.get(field, 'name')} and train.{field} say different things "
                f"({value!r} and {train[field]!r}); leave one of them out"
            )
    return {**train, **found}


def parse_engine(given: Any) -> EngineConfig:
    """The section that `given` is: a string, a mapping or None. Raises ConfigError."""
    try:
        return EngineConfig.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(["engine", *map(str, problem["loc"])])
        said = problem.get("ctx", {}).get("error", f"{problem['msg']}, got {problem['input']!r}")
        raise ConfigError(f"{key}: {said}") from None


def engine_of(engine: EngineConfig, train: Mapping[str, Any]) -> EngineConfig:
    """The section, with what a file of 0.1 says of its engine in `train`."""
    fields = {key: train[field] for key, field in _OF_TRAIN.items() if train.get(field)}
    if not train.get("use_vllm"):
        fields.pop("mode", None)
    return EngineConfig.model_validate({**fields, **engine.model_dump(exclude_defaults=True)})


def _is_of_engine(field: str) -> bool:
    return field in _ENGINE_FIELDS or field.startswith("vllm_")


def replaced(
    engine: EngineConfig, train: Mapping[str, Any], given: Any
) -> tuple[EngineConfig, dict[str, Any]]:
    """The section `given` instead of a stored run's, with the stored capacity where `given` has
    none, and `train` without what it says of the engine.

    Raises ConfigError for an unknown key or a bad value.
    """
    capacity = engine_of(engine, train).capacity
    own = parse_engine(given)
    left = {key: train[key] for key in train if not _is_of_engine(key)}
    return own.model_copy(update={"capacity": own.capacity or capacity}), left
