"""Converts a RunConfig to the trainer's settings, its environment and its tasks."""

import dataclasses
import importlib.metadata
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentsgym import __version__
from agentsgym.envs import ConfigError, MultistepEnv, make
from agentsgym.envs.extras import ensure, installed
from agentsgym.generation.factory import ENGINES, TRAINING, EngineEntry, Purpose, choose
from agentsgym.generation.http import read_key
from agentsgym.runs.answerer import answerer_settings, attach_answerer
from agentsgym.runs.chat_settings import chat_settings
from agentsgym.runs.config import DataConfig, RunConfig, check_keys
from agentsgym.runs.endpoint import CHAT as CHAT_ENGINE
from agentsgym.runs.engine_config import with_engine, written
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.machine import check_machine, device_in_use
from agentsgym.runs.model_config import CHAT, SCRIPTED
from agentsgym.runs.precision import mixed_precision
from agentsgym.runs.task_files import held_out_tasks, open_tasks
from agentsgym.runs.trackers import PROJECT, check_trackers
from agentsgym.runs.trust import trusted

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

_NO_FILES = DataConfig()

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


def datasets_of(env: MultistepEnv, data: DataConfig = _NO_FILES) -> tuple[Any, Any]:
    """Training and evaluation tasks: those of the files in `data`, or else the environment's own.
    Raises ConfigError if it defines none, or a file cannot be read."""
    return train_tasks(env, data), held_out(env, data)


def train_tasks(env: MultistepEnv, data: DataConfig) -> Any:
    """The training tasks, as in `datasets_of`."""
    if data.train is not None:
        return open_tasks("data.train", data.train)
    return _own(env.get_train_dataset)


def held_out(env: MultistepEnv, data: DataConfig) -> Any:
    """The evaluation tasks, as in `datasets_of`."""
    return _own(env.get_eval_dataset) if data.eval is None else held_out_tasks(data.eval)


def _own(tasks: Callable[[], Any]) -> Any:
    try:
        return tasks()
    except NotImplementedError as error:
        raise ConfigError(str(error)) from None


def train_settings(config: RunConfig) -> "GRPOEnvConfig":
    """The trainer's settings. Raises ConfigError with the unknown key or the problem."""
    from agentsgym.training import GRPOEnvConfig

    names = {field.name for field in dataclasses.fields(GRPOEnvConfig) if field.init}
    check_keys(config.train, names, "train.")
    path = config.model.path
    if path.startswith((CHAT, SCRIPTED)):
        raise ConfigError(
            f"model: {path!r} has no weights here to train; name a model directory, a hub "
            f"name, builtin:NAME or tiny (agentsgym eval {path} evaluates it)"
        )
    _check_engine(config)
    device = device_in_use(use_cpu=bool(config.train.get("use_cpu")))
    check_machine(config.model, device)
    if config.train.get("fp16") and device == "cpu":
        raise ConfigError("train.fp16 needs a GPU; on a CPU leave it out, or use train.bf16")
    train = with_engine(config.train, config.engine) | chat_settings(config)
    given = {**_DEFAULTS, **train, **mixed_precision(config), "seed": config.seed}
    given["eval_temperature"] = config.eval.temperature
    given["output_dir"] = str(RunDirectory(config.directory).checkpoints)
    given.setdefault("run_name", config.directory.name)
    given.setdefault("project", PROJECT)
    given["trust"] = trusted(config)
    if "max_steps" not in given and "num_train_epochs" not in given:
        if config.max_seconds is None:
            raise ConfigError("nothing ends this run: set train.max_steps or max_seconds")
        given["max_steps"] = _NO_LIMIT
    try:
        settings = GRPOEnvConfig(**given)
    except Exception as error:  # TRL and transformers raise many kinds of errors for bad values
        text = " ".join(str(error).split())
        if not isinstance(error, ValueError | TypeError):
            text = f"{type(error).__name__}: {text}"
        raise ConfigError(f"train: {text}") from error
    check_ready(choose(settings.engine_settings, TRAINING), settings)
    _check_answerer(config)
    check_trackers(settings.report_to)
    return settings


def _check_engine(config: RunConfig) -> None:
    """Raise ConfigError if the section `engine` cannot be trained with."""
    if not config.engine.model_fields_set:
        return
    try:
        choose(config.engine.settings(), Purpose(training=True, written=written))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check_answerer(config: RunConfig) -> None:
    """Raise ConfigError, MissingExtra or MissingKey if the answerer cannot be asked from here."""
    if config.answerer:
        check_installed(ENGINES[CHAT_ENGINE])
        read_key(answerer_settings(config.answerer).key_env)


def check_ready(entry: EngineEntry, settings: "GRPOEnvConfig") -> None:
    """Raise MissingExtra, ConfigError or MissingKey for an engine that cannot start here, before
    anything is loaded."""
    from agentsgym.training.engines import check_accelerator, check_launch

    check_installed(entry)
    check_accelerator(entry)
    check_launch(settings.engine_settings)
    read_key(settings.engine_key_env)


def check_installed(entry: EngineEntry) -> None:
    """Raise MissingExtra or ConfigError if an engine's package is not installed."""
    if entry.package is None or installed(entry.package):
        return
    if entry.extra is not None:
        ensure(entry.package, entry.extra)
    raise ConfigError(
        f"train.{entry.chosen_by} needs {entry.package}, which is not installed here; name running "
        "servers in train.engine_urls, or leave both out for the embedded engine"
    )


def versions() -> dict[str, str]:
    """Versions of the packages that the result depends on."""
    packages = ("torch", "trl", "transformers", "numpy")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), "agentsgym": __version__, **found}
