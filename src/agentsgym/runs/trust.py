"""What a run directory may do that was stored before, by whomever.

The user's own file and command line may name any code, file and server. A run directory is data:
it is never searched for code, and a dotted path in its configuration counts if Python finds it here
and it is an environment or an estimator. Files outside of the directory, servers and hub names in
it have no effect before the user names them too, or says `--trust`.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentsgym.envs import ConfigError, find
from agentsgym.envs.settings import paths_of, reserved_of
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.processes import processes_here, processes_started
from agentsgym.runs.settings import BUILTIN, TINY, RunConfig
from agentsgym.runs.sources import flat
from agentsgym.runs.weights import in_hub_cache, is_adapter
from agentsgym.training.settings import OwnSettings
from agentsgym.types import Trust, is_under, with_modules_of
from agentsgym.types.names import import_from_here, is_foreign, real_path

_OF_GAMES = ("train.trust", "data.eval")
_PLACES = ("data.eval", "data.train", "model.path", "model.chat_template", "warm_start.run")
_OF_ENGINE = [f"engine.{key}" for key in ("urls", "key_env", "launch", "command", "launch_args")]
_OF_TRAINING = (*_PLACES, *_OF_ENGINE, "warm_start.engine.urls")
_TRAIN = r"train\.(push_to_hub|hub_|trackio_|vllm_|log_completions_hub_|teacher_model).*"
_FILES = r"train\.(deepspeed|fsdp_config|accelerator_config)"


def trusted(config: RunConfig) -> Trust:
    """What the rows of a run may name: what `train.trust` says, and its environment's module."""
    return with_modules_of(config.train.trust, config.env)


def with_trust(config: RunConfig) -> RunConfig:
    """The configuration under `--trust`."""
    return config.model_copy(update={"train": config.train.changed({"trust": True})})


def foreign_code(config: RunConfig) -> list[str]:
    """The dotted paths outside the package that a configuration names: environment, estimator, and
    a member of each module that rows may name."""
    modules = config.train.trust
    members = [] if isinstance(modules, bool) else [f"{module}.*" for module in modules]
    names = [config.env, config.train.advantage_estimator, *members]
    return [name for name in dict.fromkeys(names) if is_foreign(name)]


def import_stored(names: Iterable[str], *directories: Path) -> None:
    """Let Python find in the working directory what these run directories name, unless it lies in
    one of them."""
    if not is_under(Path.cwd().resolve(), [directory.resolve() for directory in directories]):
        import_from_here(*names)


def outside_of_env(env: str, env_config: Mapping[str, Any], trust: Trust = False) -> dict[str, Any]:
    """The files, servers and sizes that settings of an environment name, by key; its class is
    imported."""
    keys = find(env, trust).Settings
    return {**paths_of(keys, env_config), **reserved_of(keys, env_config)}


def outside(config: RunConfig, *, training: bool) -> dict[str, Any]:
    """What a configuration names outside of its directory, by key: files, folders, servers,
    commands and names of hubs, for `training` or for an evaluation of its own weights."""
    of_env = find(config.env, trusted(config)).Settings
    paths = flat(paths_of(of_env, config.env_config), "env_config")
    named = paths | flat(reserved_of(of_env, config.env_config), "env_config")
    settings = flat(config.model_dump(mode="json"))
    keys = [key for key in settings if key in _OF_GAMES or (training and _reaches(key, settings))]
    named |= {key: settings[key] for key in keys if settings[key]}
    named = {key: value for key, value in named.items() if not _is_known(config, key, value)}
    places = [key for key in named if key in _PLACES or key in paths]
    inside = {key for key in places if _is_in(named[key], config.directory.resolve())}
    return {key: value for key, value in named.items() if key not in inside}


def _reaches(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting of training may name a file or a server."""
    value = settings[key]
    if key in _OF_TRAINING or re.fullmatch(_TRAIN, key):
        return True
    texts = [one for one in (value if isinstance(value, list) else [value]) if type(one) is str]
    is_place = re.fullmatch(_FILES, key) or any(set("/\\~") & set(text) for text in texts)
    is_trl = key.startswith("train.") and key.split(".")[1] not in OwnSettings.model_fields
    return is_trl and bool(texts and is_place)


def _is_known(config: RunConfig, key: str, value: Any) -> bool:
    """Whether a value is no place, or a model of the package or one that was downloaded before."""
    if key == "train.trust":
        return value is not True
    if key == "model.path":
        is_ours = value == TINY or value.startswith(BUILTIN)
        cached = not Path(value).exists() and in_hub_cache(value, config.model.revision)
        return is_ours or cached or not _reads_model(config)
    return key == "model.chat_template" and config.model.template_file is None


def _reads_model(config: RunConfig) -> bool:
    """Whether a resumed run still needs the model it began with, as the base of an adapter, as the
    reference, or because there is no checkpoint."""
    stored = RunDirectory(config.directory).last_checkpoint()
    return stored is None or is_adapter(stored[1]) or bool(config.train.beta)


def _is_in(place: str, directory: Path) -> bool:
    real = real_path(place)
    return real.exists() and is_under(real, [directory])


def check_stored(
    config: RunConfig,
    overrides: Mapping[str, Any] = MappingProxyType({}),
    *,
    training: bool,
    file: RunConfig | None = None,
) -> None:
    """Raise ConfigError for files and servers that a stored configuration names, except those that
    the user names too, in `overrides` or in a `file` of a run."""

    def is_named(key: str) -> bool:
        return any(key == name or key.startswith(f"{name}.") for name in overrides)

    of_user = {} if file is None else outside(file, training=training)
    reach = outside(config, training=training).items()
    foreign = {k: v for k, v in reach if not (is_named(k) or of_user.get(k) == v)}
    if foreign:
        texts = (
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in foreign.items()
        )
        raise ConfigError(
            f"the configuration in {config.directory} names what is outside of it: "
            f"{' '.join(texts)}. If you trust that, name it again on the command line, or add "
            "--trust"
        )


def check_links(directory: Path) -> None:
    """Raise ConfigError for a link that leads out of a directory."""
    for folder, folders, files in os.walk(directory):
        for link in filter(Path.is_symlink, (Path(folder, name) for name in (*folders, *files))):
            target = real_path(link)
            if not is_under(target, [directory.resolve()]):
                raise ConfigError(
                    f"{link} is a link to {target}, outside of {directory}; if you trust "
                    "it, add --trust"
                )


def resume_command(config: RunConfig) -> str:
    """The command that resumes a run, in as many processes if all are on this machine."""
    started = processes_started()
    several = f" --processes {started}" if 1 < started == processes_here() else ""
    trust = " --trust" if outside(config, training=True) else ""
    return f"agentsgym train --resume {shlex.quote(str(config.directory))}{several}{trust}"
