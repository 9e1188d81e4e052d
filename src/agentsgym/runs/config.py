"""RunConfig: all settings of a training run."""

import difflib
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentsgym.envs import ConfigError
from agentsgym.runs.engine_config import ENDPOINT_KEYS, EngineConfig, with_engine
from agentsgym.runs.files.retention import KeepRollouts
from agentsgym.runs.model_config import LoraSettings, ModelConfig
from agentsgym.training import setting_parsers
from agentsgym.types.text import MASK, masked, remember_secret, secrets_in

MOST_EPISODES = 10_000_000
LARGEST_SEED = 2**32 - 1  # NumPy accepts no larger seed
_DEEPEST, _MOST = 40, 100_000


class EvalConfig(BaseModel):
    """The evaluation before and after training: `episodes` rollouts, each task
    `rollouts_per_task` times (more often if there are too few tasks)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    episodes: int = Field(default=256, ge=1, le=MOST_EPISODES)
    temperature: float = Field(default=1.0, ge=0)
    rollouts_per_task: int = Field(default=1, ge=1, le=MOST_EPISODES)
    seed: int = Field(
        default=0, ge=0, le=LARGEST_SEED, description="seed of the tasks and the sampling noise"
    )


class DataConfig(BaseModel):
    """Files of dataset rows that take the place of the environment's own tasks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    train: str | None = None
    eval: str | None = None


class RunConfig(BaseModel):
    """A training run.

    `description`, `needs`, `costs` and `run_on` are for the reader.
    `env` is a registered name or the dotted path of a class. `model` is a `ModelConfig`, or a
    string for its `path`; `engine` is an `EngineConfig`, or a string for its `name`. `warm_start`
    has the settings of a warm start: of the model `tiny`, or of a pretrained model if it names a
    `source`. `answerer` names a chat endpoint that answers the questions of Twenty Questions.
    `data` names files of tasks. `keep_rollouts` says which training rollouts stay on disk. `train`
    has fields of `GRPOEnvConfig`. With `signal_check`, a run stops after its first generation if
    hardly any action is legal and hardly any group has signal.
    `max_seconds` ends RL at the next generation boundary after that time; `time_decay_to` then
    lets the learning rate decrease linearly with the used time, to that fraction of it.
    `threads` is torch's number of threads (None: torch's own default).
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(default="run", pattern=r"^\w[\w.-]*$")
    description: str = ""
    needs: str = ""
    costs: str = ""
    run_on: str = ""
    seed: int = Field(default=0, ge=0, le=LARGEST_SEED)
    env: str
    env_config: dict[str, Any] = Field(default_factory=dict)
    model: ModelConfig = Field(default_factory=ModelConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    warm_start: dict[str, Any] = Field(default_factory=dict)
    answerer: dict[str, Any] = Field(default_factory=dict)
    data: DataConfig = Field(default_factory=DataConfig)
    keep_rollouts: KeepRollouts = Field(default_factory=KeepRollouts)
    train: dict[str, Any] = Field(default_factory=dict)
    eval: EvalConfig = Field(default_factory=EvalConfig)
    signal_check: bool = True
    max_seconds: float | None = Field(default=None, gt=0)
    time_decay_to: float | None = Field(default=None, ge=0, le=1)
    threads: int | None = Field(default=None, ge=1)
    output_dir: Path | None = Field(default=None, strict=False)

    @field_validator("train")
    @classmethod
    def _lists(cls, train: dict[str, Any]) -> dict[str, Any]:
        return setting_parsers.lists(train)

    @property
    def directory(self) -> Path:
        """The run's directory: `output_dir`, or else `runs/<name>`."""
        return self.output_dir or Path("runs") / self.name

    def to_yaml(self) -> str:
        """The configuration as YAML that can be read back; keys and URL credentials are masked."""
        data = masked(self.model_dump(mode="json"))
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


# Fields of GRPOEnvConfig that the run sets itself, and the setting to use instead.
_OWN_TRAIN_KEYS = {
    "seed": "seed",
    "output_dir": "output_dir",
    "eval_temperature": "eval.temperature",
    "eval_rollouts": "eval.rollouts_per_task",
    "resume_from_checkpoint": "--resume RUN_DIR on the command line",
}


# Fields whose values would run a model's own code, or are in the section `model`.
_NOT_IN_A_RUN = {
    "trust_remote_code": "a run never executes a model's own code",
    "model_init_kwargs": "its settings are in the section model (model.dtype, …)",
}


def parse_config(data: Mapping[str, Any]) -> RunConfig:
    """Check a mapping and convert it to a RunConfig.

    Raises ConfigError with the wrong key and the allowed values. The contents of `env_config`,
    `warm_start` and `train` are checked later, by their own classes.
    """
    check_keys(data, RunConfig.model_fields, "")
    check_values(data)
    check_keys(data.get("eval") or {}, EvalConfig.model_fields, "eval.")
    check_keys(data.get("data") or {}, DataConfig.model_fields, "data.")
    check_keys(data.get("keep_rollouts") or {}, KeepRollouts.model_fields, "keep_rollouts.")
    _check_model_keys(data.get("model"))
    if not isinstance(data.get("engine"), str | EngineConfig):
        check_keys(data.get("engine") or {}, EngineConfig.model_fields, "engine.")
    for part in ("train", "env_config", "warm_start", "answerer"):
        if not isinstance(data.get(part) or {}, Mapping):
            raise ConfigError(f"{part} must be a mapping, got {data[part]!r}")
    check_keys(data.get("answerer") or {}, ENDPOINT_KEYS, "answerer.")
    for key, instead in _OWN_TRAIN_KEYS.items():
        if key in (data.get("train") or {}):
            raise ConfigError(f"train.{key} is set by the run; use {instead} instead")
    for key, why in _NOT_IN_A_RUN.items():
        if (data.get("train") or {}).get(key):
            raise ConfigError(f"train.{key} is not for a run: {why}")
    try:
        config = RunConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_first_problem(error)) from None
    _take_secrets(config)
    with_engine(config.train, config.engine)
    if config.time_decay_to is not None and config.max_seconds is None:
        raise ConfigError("time_decay_to needs max_seconds, the time over which it decays")
    return config


def _check_model_keys(given: Any) -> None:
    if not isinstance(given, str | ModelConfig | None):
        check_keys(given, ModelConfig.model_fields, "model.")
        check_keys(given.get("lora") or {}, LoraSettings.model_fields, "model.lora.")


def _take_secrets(config: RunConfig) -> None:
    """Remember keys, so that no message shows them. Raise ConfigError for a key whose value is the
    mask, as in a stored configuration."""
    parts = {name: getattr(config, name) for name in ("env_config", "train", "answerer")}
    for part, values in (parts | {"engine": config.engine.model_dump()}).items():
        for key, value in secrets_in(values, part):
            if MASK in value:
                raise ConfigError(f"{key} is masked, because keys are not stored; add {key}=…")
            remember_secret(value)


def check_keys(given: Any, allowed: Collection[str], prefix: str) -> None:
    """Raise ConfigError for a key that is not allowed, with the most similar allowed keys."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{prefix.rstrip('.') or 'a run'} must be a mapping, got {given!r}")
    for key in given:
        if key not in allowed:
            hint = _hint(str(key), allowed, prefix)
            raise ConfigError(f"unknown key {prefix + str(key)!r}; {hint}")


def check_values(data: Mapping[str, Any]) -> None:
    """Raise ConfigError for a number that is not finite, or for a recursive value (YAML's aliases
    can make a list that contains itself)."""
    left = _MOST
    waiting: list[tuple[str, Any]] = list(data.items())
    while waiting:
        key, value = waiting.pop()
        left -= 1
        if left < 0 or key.count(".") > _DEEPEST:
            raise ConfigError(f"{key[:60]} is nested too deeply or too large")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} is {value}; a number must be finite")
        if isinstance(value, Mapping):
            waiting += [(f"{key}.{name}", item) for name, item in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{key}.{index}", item) for index, item in enumerate(value)]


def _hint(key: str, allowed: Collection[str], prefix: str) -> str:
    near = difflib.get_close_matches(key, allowed, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(repr(prefix + name) for name in near)}?"
    if len(allowed) > 40:
        return f"none of the {len(allowed)} keys of {prefix.rstrip('.')!r} is similar"
    return f"allowed are {', '.join(prefix + name for name in sorted(allowed))}"


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] == "value_error":
        return f"{key}: {problem['ctx']['error']}"
    return f"{key}: {problem['msg'][:1].lower()}{problem['msg'][1:]}, got {problem['input']!r}"
