"""Converts a RunConfig to the trainer's settings, its environment and its tasks."""

import dataclasses
import importlib.metadata
import platform
from typing import TYPE_CHECKING, Any

from agentsgym import __version__
from agentsgym.envs import ConfigError, MultistepEnv, make
from agentsgym.envs.dataset import tasks_of
from agentsgym.envs.extras import ensure
from agentsgym.generation.factory import EngineEntry, choose
from agentsgym.generation.http import read_key
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs.answerer import attach_answerer
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.machine import check_machine, device_in_use, dtype_of
from agentsgym.runs.models.load import check_name
from agentsgym.runs.settings import CHAT, SCRIPTED, DataSettings, ModelSettings, RunConfig
from agentsgym.runs.task_files import held_out_tasks, open_tasks
from agentsgym.runs.trackers import PROJECT, check_trackers
from agentsgym.runs.trust import trusted
from agentsgym.types.errors import unknown_key

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

_NO_FILES = DataSettings()

# If neither steps nor epochs are given, only time limits the run.
_NO_LIMIT = 1_000_000

_DEFAULTS: dict[str, Any] = {
    "logging_steps": 1,
    "report_to": "none",
    "disable_tqdm": True,
    "save_total_limit": 2,
    "save_only_model": False,
}


def make_env(config: RunConfig, tokenizer: Any = None) -> MultistepEnv:
    """The environment; without a tokenizer, for its tasks. Its answerer, if the run names one, can
    be asked inside `answering`. Raises UnknownEnvironment or ConfigError."""
    env = make(
        config.env,
        tokenizer,
        config.env_config,
        trust=trusted(config),
    )
    if config.answerer:
        attach_answerer(env, config.answerer)
    return env


def datasets_of(env: MultistepEnv, data: DataSettings = _NO_FILES) -> tuple[Any, Any]:
    """Training and evaluation tasks: those of the files in `data`, or else the environment's own.
    Raises ConfigError if it defines none, or a file cannot be read."""
    return train_tasks(env, data), held_out(env, data)


def train_tasks(env: MultistepEnv, data: DataSettings) -> Any:
    """The training tasks, as in `datasets_of`."""
    if data.train is not None:
        return open_tasks("data.train", data.train)
    return _own(env, "train")


def held_out(env: MultistepEnv, data: DataSettings) -> Any:
    """The evaluation tasks, as in `datasets_of`."""
    return _own(env, "eval") if data.eval is None else held_out_tasks(data.eval)


def _own(env: MultistepEnv, which: str) -> Any:
    try:
        return tasks_of(env, which)
    except NotImplementedError as error:
        raise ConfigError(str(error)) from None


def train_settings(config: RunConfig) -> "GRPOEnvConfig":
    """The trainer's settings. Raises ConfigError with the unknown key or the problem, MissingExtra
    or MissingKey for what its engine and endpoints need, before anything is loaded."""
    from agentsgym.training import GRPOEnvConfig

    names = {field.name for field in dataclasses.fields(GRPOEnvConfig) if field.init}
    for key in config.train.keys() - names:
        raise ConfigError(unknown_key(key, names, "train."))
    path = config.model.path
    if path.startswith((CHAT, SCRIPTED)):
        raise ConfigError(
            f"model: {path!r} has no weights here to train; name a model directory, a hub "
            f"name, builtin:NAME or tiny (agentsgym eval {path} evaluates it)"
        )
    check_name(config.model)
    device = device_in_use(use_cpu=bool(config.train.get("use_cpu")))
    check_machine(config.model, device)
    given = {**_DEFAULTS, **config.train, **_precision(config, device)}
    given |= chat_settings(config.model) | {"eval_temperature": config.eval.temperature}
    given |= {"engine": config.engine, "ray": config.ray, "seed": config.seed}
    given["output_dir"] = str(RunDirectory(config.directory).checkpoints)
    given.setdefault("run_name", config.directory.name)
    given.setdefault("project", PROJECT)
    given["trust"] = trusted(config)
    if "max_steps" not in given and "num_train_epochs" not in given:
        if config.max_seconds is None:
            raise ConfigError("nothing ends this run: set train.max_steps or max_seconds")
        given["max_steps"] = _NO_LIMIT
    check_ready(config.engine)
    try:
        settings = GRPOEnvConfig(**given)
    except Exception as error:  # TRL and transformers raise many kinds of errors for bad values
        text = " ".join(str(error).split())
        if not isinstance(error, ValueError | TypeError):
            text = f"{type(error).__name__}: {text}"
        raise ConfigError(f"train: {text}") from error
    if config.answerer is not None:
        check_ready(config.answerer.as_engine(), training=False)
    check_trackers(settings.report_to)
    return settings


def chat_settings(model: ModelSettings) -> dict[str, Any]:
    """`chat_template` and `chat_template_kwargs` of the trainer. The text of a template file is
    already in the tokenizer."""
    choice = "own" if model.template_file is not None else model.chat_template
    kwargs = model.chat_template_kwargs
    return {"chat_template": choice} | ({"chat_template_kwargs": kwargs} if kwargs else {})


def _precision(config: RunConfig, device: str) -> dict[str, Any]:
    """`bf16` and `fp16` of the trainer: float32 weights, multiplied in the model's dtype. Without a
    GPU `use_cpu` goes with `bf16`: transformers asks for both."""
    dtype = str(dtype_of(config.model, device))
    chosen = {"bf16": dtype == "torch.bfloat16", "fp16": dtype == "torch.float16"}
    on_cpu = config.train.get("use_cpu", device == "cpu")
    return chosen | ({"use_cpu": on_cpu} if chosen["bf16"] else {})


def check_ready(engine: EngineSettings, *, training: bool = True) -> None:
    """Raise ConfigError, MissingExtra or MissingKey for an engine that cannot start here."""
    from agentsgym.training.engines import check_launch

    check_installed(choose(engine, training=training))
    check_launch(engine)
    read_key(engine.key_env)


def check_installed(entry: EngineEntry) -> None:
    """Raise MissingExtra if what an engine needs to ask servers is not installed."""
    if entry.served:
        ensure("aiohttp", "http")


def versions() -> dict[str, str]:
    """Versions of the packages that the result depends on."""
    packages = ("torch", "trl", "transformers", "numpy")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), "agentsgym": __version__, **found}
