"""What a configuration names: the environment, the tasks, the trainer's settings."""

import dataclasses
import importlib.metadata
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentsgym import __version__
from agentsgym.envs import ConfigError, EnvPool, MultistepEnv, make
from agentsgym.envs.dataset import TaskFile, tasks_of
from agentsgym.envs.extras import installed
from agentsgym.generation.factory import choose
from agentsgym.generation.settings import EngineSettings, read_key
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.models import check_machine, check_name, device_in_use, dtype_of
from agentsgym.runs.processes import processes_here, processes_started
from agentsgym.runs.settings import CHAT, SCRIPTED, DataSettings, ModelSettings, RunConfig
from agentsgym.runs.trust import trusted
from agentsgym.tokens import inspect_tokenizer
from agentsgym.training.settings import ELSEWHERE
from agentsgym.types.names import unknown_key

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig


def make_env(config: RunConfig) -> MultistepEnv:
    """The environment, without a tokenizer: for its tasks. Raises UnknownEnvironment or
    ConfigError."""
    return make(config.env, None, config.env_config, trust=trusted(config))


def run_tasks(env: MultistepEnv, data: DataSettings, which: Literal["train", "eval"]) -> Any:
    """Training or evaluation tasks: those of the file in `data`, each of which is read when it is
    drawn, a row or a task of the environment; or else the environment's own. Raises ConfigError if
    it defines none, or the file cannot be read."""
    path = getattr(data, which)
    try:
        return tasks_of(env, which) if path is None else TaskFile(Path(path).expanduser(), env)
    except NotImplementedError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        if path is None:
            raise
        raise ConfigError(
            f"data.{which}: {path} cannot be read as JSON lines: {error.strerror}"
        ) from None


def checked_tasks(config: RunConfig, env: MultistepEnv, which: Literal["train", "eval"]) -> Any:
    """The same tasks of a run. Raises ConfigError also for bad rows of a file; the trainer checks
    the environment's own."""
    from agentsgym.training.tasks import refuse_bad_tasks

    rows, path = run_tasks(env, config.data, which), getattr(config.data, which)
    if path is not None:
        refuse_bad_tasks(path, rows, EnvPool(None, trusted(config), [env]))
    return rows


# -- the trainer -----------------------------------------------------------------------------------

NO_LIMIT = 1_000_000
"""`max_steps` of the trainer where only time limits a run."""
_ENDLESS = ("constant", "constant_with_warmup", "inverse_sqrt", "reduce_lr_on_plateau", "greedy")
_DEFAULTS: dict[str, Any] = {
    # Seconds. Others wait while one process plays or learns, and a launcher ends them with it.
    "ddp_timeout": 24 * 3600,
    "logging_steps": 1,
    "report_to": "none",
    "disable_tqdm": True,
    "save_total_limit": 2,
    "save_only_model": False,
}


def train_settings(config: RunConfig) -> "GRPOEnvConfig":
    """The trainer's settings. Raises ConfigError with the unknown key or the problem, MissingExtra
    or MissingKey for what its engine and endpoints need, before anything is loaded."""
    from transformers.integrations import get_reporting_integration_callbacks

    from agentsgym.training import GRPOEnvConfig

    names = {field.name for field in dataclasses.fields(GRPOEnvConfig) if field.init}
    for key in config.train.given.keys() - names:
        raise ConfigError(unknown_key(key, names - ELSEWHERE.keys(), "train."))
    path = config.model.path
    if path.startswith((CHAT, SCRIPTED)):
        raise ConfigError(
            f"model: {path!r} has no weights here to train; name a model directory, a hub "
            f"name, builtin:NAME or tiny (agentsgym eval {path} evaluates it)"
        )
    check_name(config.model)
    device = device_in_use(use_cpu=bool(config.train.use_cpu))
    check_machine(config.model, device)
    _check_gpus(device)
    values = {
        **_DEFAULTS,
        "run_name": config.directory.name,
        "project": "agentsgym",
        **config.train.given,
        **_sharing(config),
        **_precision(config, device),
        "chat_template": config.model.template_choice,
        "chat_template_kwargs": config.model.chat_template_kwargs or None,
        "eval_temperature": config.eval.temperature,
        "engine": config.engine,
        "ray": config.ray,
        "seed": config.seed,
        "output_dir": str(RunDirectory(config.directory).checkpoints),
        "trust": trusted(config),
    }
    if "max_steps" not in values and "num_train_epochs" not in values:
        if config.max_seconds is None:
            raise ConfigError(
                "nothing ends this run: set train.max_steps or max_seconds, or train=auto, which "
                "chooses what is not given"
            )
        values |= {"max_steps": NO_LIMIT, **_endless_schedule(config.train.given)}
    _check_ready(config.engine)
    try:
        settings = GRPOEnvConfig.of_read(**values)
        get_reporting_integration_callbacks(settings.report_to)  # refuses an unknown one
    except Exception as error:  # TRL and transformers raise many kinds of errors for bad values
        text = " ".join(str(error).split())
        if not isinstance(error, ValueError | TypeError):
            text = f"{type(error).__name__}: {text}"
        raise ConfigError(f"train: {text}") from error
    return settings


def _endless_schedule(train: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule of a run whose number of steps nobody knows. Raises ConfigError for a setting
    that depends on the number."""
    kind = str(train.get("lr_scheduler_type") or "")
    shares = ("warmup_steps", "warmup_ratio", "save_steps", "eval_steps", "logging_steps")
    named = [key for key in shares if 0 < (train.get(key) or 0) < 1]
    if named or kind not in ("", *_ENDLESS):
        key = named[0] if named else "lr_scheduler_type"
        raise ConfigError(
            f"train.{key}={train[key]} depends on the number of steps, and max_seconds alone ends "
            "this run: set train.max_steps too, or a number of steps and one of the schedules "
            f"{', '.join(_ENDLESS)}"
        )
    warm = "constant_with_warmup" if train.get("warmup_steps") else "constant"
    return {"lr_scheduler_type": kind or warm}


def _check_gpus(device: str) -> None:
    """Raise ConfigError if there are more processes than GPUs."""
    import torch

    number = processes_here()
    if device == "cuda" and number > torch.cuda.device_count():
        raise ConfigError(
            f"{number} processes need a GPU each, and this machine has {torch.cuda.device_count()}"
        )


_AUTO = "auto"  # transformers fills it in from the other settings
_SHARING: dict[str, dict[str, Any]] = {
    "ddp": {},
    "zero2": {
        "deepspeed": {
            "zero_optimization": {"stage": 2},
            "bf16": {"enabled": _AUTO},
            "fp16": {"enabled": _AUTO},
            "train_batch_size": _AUTO,
            "train_micro_batch_size_per_gpu": _AUTO,
            "gradient_accumulation_steps": _AUTO,
            "gradient_clipping": _AUTO,
        }
    },
    "fsdp2": {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "state_dict_type": "FULL_STATE_DICT",
        },
    },
}


def _sharing(config: RunConfig) -> dict[str, Any]:
    """The trainer's settings for `distributed`. One process has the whole model anyway."""
    return _SHARING[config.distributed] if processes_started() > 1 else {}


def _precision(config: RunConfig, device: str) -> dict[str, Any]:
    """`bf16` and `fp16` of the trainer: float32 weights, multiplied in the model's dtype. Without a
    GPU `use_cpu` goes with `bf16`, because transformers asks for both, and with several processes,
    which accelerate lets train together only so."""
    dtype = str(dtype_of(config.model, device))
    chosen = {"bf16": dtype == "torch.bfloat16", "fp16": dtype == "torch.float16"}
    on_cpu = device == "cpu" if config.train.use_cpu is None else config.train.use_cpu
    return chosen | ({"use_cpu": on_cpu} if chosen["bf16"] or processes_started() > 1 else {})


def _check_ready(engine: EngineSettings, *, training: bool = True) -> None:
    """Raise ConfigError or MissingKey for an engine that cannot start here."""
    from agentsgym.training.engines import check_launch

    choose(engine, training=training)
    check_launch(engine)
    read_key(engine.key_env)


# -- chat templates --------------------------------------------------------------------------------


def rendering(model: ModelSettings, tokenizer: Any) -> dict[str, Any]:
    """The arguments of every rendering in an evaluation; `tokenizer` is None for a text-only
    agent. Raises ConfigError."""
    from agentsgym.training.chat_templates import template_options

    try:
        return template_options(tokenizer, model.template_choice, model.chat_template_kwargs)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def template_remark(model: ModelSettings, tokenizer: Any) -> str | None:
    """What a user should know of a model's chat template before training. Raises ConfigError if
    the section asks for a template that there is not."""
    try:
        check = inspect_tokenizer(tokenizer, rendering(model, tokenizer))
    except ValueError as error:
        raise ConfigError(f"the chat template of {model.path}: {error}") from None
    if not check.has_template:
        return "the model has no chat template: prompts and actions are joined as plain text"
    if False not in (check.append_only, check.thoughts_append_only):
        return None
    dropped = "parts of earlier turns" if check.append_only is False else "earlier thoughts"
    return (
        f"the chat template drops {dropped}: each time a new row begins, and training takes "
        "longer; model.chat_template=training, or a .jinja file, may keep them"
    )


def versions() -> dict[str, str]:
    """Versions of the packages that the result depends on, as far as they are installed."""
    packages = filter(installed, ("torch", "trl", "transformers", "numpy"))
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), "agentsgym": __version__, **found}
