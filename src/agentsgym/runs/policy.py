"""The initial model of a run, and the reference model of KL."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError
from agentsgym.runs.builtin_models import builtin_folder
from agentsgym.runs.config import LARGEST_SEED, RunConfig, check_keys
from agentsgym.runs.from_config import make_env
from agentsgym.runs.model_config import BUILTIN, TINY, ModelConfig
from agentsgym.runs.pretrained import Policy, load_pretrained, pretrained_tokenizer
from agentsgym.runs.progress import Progress
from agentsgym.runs.scripted_agents import scripted_agent

if TYPE_CHECKING:
    from agentsgym.training.warm_start.config import WarmStartConfig

_FIGURES = "figures.json"


def load_policy(config: RunConfig, progress: Progress) -> Policy:
    """The model that `config.model` names. Raises ConfigError if it does not exist."""
    path = config.model.path
    if path == TINY:
        return _warm_start(config, progress)
    if path.startswith(BUILTIN):
        return _load_builtin(path.removeprefix(BUILTIN))
    return load_pretrained(path)


def load_tokenizer(config: RunConfig) -> Any:
    """The tokenizer of the model that `config.model` names, without its weights.

    Raises ConfigError if it does not exist.
    """
    path = config.model.path
    if path == TINY:
        raise ConfigError("model: 'tiny' is made in this process, so no server can serve it")
    if path.startswith(BUILTIN):
        with builtin_folder(path.removeprefix(BUILTIN)) as folder:
            return pretrained_tokenizer(folder)
    return pretrained_tokenizer(path)


def _load_builtin(name: str) -> Policy:
    with builtin_folder(name) as folder:
        policy = load_pretrained(folder)
        notes = folder / _FIGURES
        figures = json.loads(notes.read_text(encoding="utf-8")) if notes.is_file() else {}
    return Policy(policy.model, policy.tokenizer, figures)


def _warm_start(config: RunConfig, progress: Progress) -> Policy:
    from agentsgym.training.warm_start.loop import warm_start

    env = make_env(config)
    settings = warm_start_settings(config.warm_start)
    seed = config.warm_start.get("seed", 0)

    def report(step: int, steps: int, values: Mapping[str, float]) -> None:
        progress.warm_start(step, steps, values)

    try:
        teacher = scripted_agent(env, "teacher", seed=seed)
    except ConfigError as error:
        raise ConfigError(
            f"model: tiny imitates a teacher first, but {error}; or let 'model' name a model"
        ) from error
    result = warm_start(env, teacher, settings, seed, progress=report)
    figures = dict(result.figures) | {"settings": config.warm_start}
    return Policy(result.model, result.tokenizer, figures)


def warm_start_settings(given: Mapping[str, Any]) -> "WarmStartConfig":
    """`warm_start` of a RunConfig: fields of `WarmStartConfig` (`model` has those of
    `TinyConfig`), and `seed`. Raises ConfigError with an unknown key or a bad value."""
    from agentsgym.training.warm_start.config import WarmStartConfig
    from agentsgym.training.warm_start.tiny import TinyConfig

    check_keys(given, {"seed", *_names(WarmStartConfig)}, "warm_start.")
    check_keys(given.get("model", {}), _names(TinyConfig), "warm_start.model.")
    seed = given.get("seed", 0)
    if type(seed) is not int or not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"warm_start.seed must be a whole number from 0, got {seed!r}")
    fields = {name: value for name, value in given.items() if name not in ("seed", "model")}
    try:
        return WarmStartConfig(**fields, model=TinyConfig(**given.get("model", {})))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"warm_start: {error}") from error


def _names(kind: Any) -> set[str]:
    return {entry.name for entry in dataclasses.fields(kind)}


def name_reference(model: Any, named: ModelConfig, folder: Path) -> None:
    """Set the name of `model` to its initial weights, which TRL loads as the reference.

    A resumed model was loaded from its checkpoint and would otherwise be its own reference.
    `named` is the run's `model`; if the run created it, a copy is kept in `folder`.
    """
    source = named.path
    if named.is_ours:
        if not folder.is_dir():
            _save_whole(model, folder)
        source = str(folder)
    model.config._name_or_path = source


def _save_whole(model: Any, folder: Path) -> None:
    """Save completely or not at all."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    part.rename(folder)
