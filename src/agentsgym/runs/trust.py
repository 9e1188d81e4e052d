"""Whom a run's configuration may obey. The user's own file and command line may name any code, file
and server, and so may the directories that this user's own commands made. A directory of somebody
else is data: it names registered things only, unless the user names them too or says `--trust`."""

import json
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentsgym.envs import ConfigError, find
from agentsgym.envs.settings import paths_of, reserved_of
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.models.adapters import is_adapter
from agentsgym.runs.processes import processes_here, processes_started
from agentsgym.runs.settings import RunConfig
from agentsgym.types import Trust, is_under, with_modules_of
from agentsgym.types.names import import_from_here, is_foreign

# What lets a training reach others or start programs.
_SENDING = (
    "push_to_hub",
    "report_to",
    "log_completions_hub_repo",
    "logging_dir",
    "trackio_space_id",
    "trackio_bucket_id",
    "trackio_static_space_id",
)
_OF_ENGINE = ("urls", "key_env", "launch", "command", "launch_args")
_NOBODY = ("none", ["none"])


# -- directories that are the user's own -----------------------------------------------------------


def own_directories() -> Path:
    """The file that lists the directories that this user's own commands made."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "agentsgym" / "own-runs"


def remember_own(directory: Path) -> None:
    """Take an existing directory as the user's own from now on. Where the list cannot be written,
    commands ask for `--trust` later."""
    entry, file = _entry(directory.resolve()), own_directories()
    if entry in _entries():
        return
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(entry + "\n")


def is_own(directory: Path) -> bool:
    """Whether this user's own commands made the directory, or one in which it lies."""
    real, known = directory.resolve(), _entries()
    return any(_entry(place) in known for place in (real, *real.parents) if place.is_dir())


def _entry(directory: Path) -> str:
    """A line of the list: a directory that takes the place of an own one has another number."""
    return json.dumps([str(directory), directory.stat().st_ino])


def _entries() -> set[str]:
    try:
        return set(own_directories().read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return set()


# -- what a configuration names --------------------------------------------------------------------


def trusted(config: RunConfig) -> Trust:
    """What the rows of a run may name: what `train.trust` says, and its environment's module."""
    return with_modules_of(config.train.get("trust") or False, config.env)


def with_trust(config: RunConfig) -> RunConfig:
    """The configuration under `--trust`."""
    return config.model_copy(update={"train": {**config.train, "trust": True}})


def foreign_code(config: RunConfig) -> list[str]:
    """The dotted paths outside the package that a configuration names: its environment, its
    estimator, and a member of each module that rows may name."""
    modules = config.train.get("trust") or ()
    members = [] if isinstance(modules, bool) else [f"{module}.*" for module in modules]
    names = [config.env, str(config.train.get("advantage_estimator") or ""), *members]
    return [name for name in dict.fromkeys(names) if is_foreign(name)]


def outside_of_env(env: str, env_config: Mapping[str, Any], trust: Trust = False) -> dict[str, Any]:
    """The files, servers and sizes that settings of an environment name, by key; its class is
    imported."""
    import_from_here(env)
    keys = find(env, trust).Settings
    return {**paths_of(keys, env_config), **reserved_of(keys, env_config)}


def check_untrusted(
    config: RunConfig,
    overrides: Mapping[str, Any] = MappingProxyType({}),
    own: RunConfig | None = None,
    *,
    training: bool = False,
) -> RunConfig:
    """The configuration of a directory of somebody else, for an evaluation or for more `training`.

    Raises ConfigError for code, files, servers and commands that it names, except those that the
    user names too: in the `overrides` on the command line, or in the preset or file `own`. A model
    that only the directory names is not downloaded.
    """

    def is_set(key: str) -> bool:
        return any(key == name or key.startswith(f"{name}.") for name in overrides)

    ours = {} if own is None else _reach(own, training)
    reach = _reach(config, training)
    if "env" not in reach or is_set("env") or ours.get("env") == config.env:
        reach |= _outside(config)
        ours |= {} if own is None else _outside(own)
    foreign = {
        key: value for key, value in reach.items() if not is_set(key) and ours.get(key) != value
    }
    if foreign:
        texts = (
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in foreign.items()
        )
        raise ConfigError(
            f"the run in {config.directory} is not one of yours, and names code, files or servers: "
            f"{' '.join(texts)}. If you trust them, name them again on the command line, or add "
            "--trust"
        )
    if is_set("model.path") or (own and own.model.path == config.model.path):
        return config
    return config.model_copy(update={"model": config.model.without_downloads()})


def _outside(config: RunConfig) -> dict[str, Any]:
    outside = outside_of_env(config.env, config.env_config, trusted(config))
    return {f"env_config.{key}": value for key, value in outside.items()}


def _reach(config: RunConfig, training: bool) -> dict[str, Any]:
    """What else it would use outside the run's directory, by the key that names it."""
    estimator = str(config.train.get("advantage_estimator") or "")
    outside: dict[str, Any] = {
        "train.trust": config.train.get("trust"),
        "env": config.env if is_foreign(config.env) else None,
        "train.advantage_estimator": estimator if is_foreign(estimator) else None,
        "data.train": config.data.train,
        "data.eval": config.data.eval,
    }
    if training:
        outside |= _model_files(config)
        outside |= {f"train.{key}": config.train.get(key) for key in _SENDING}
        outside["warm_start.run"] = config.warm_start.run
        outside["ray.workers"] = config.ray.workers
        sections = {
            "engine": config.engine,
            "answerer": config.answerer,
            "warm_start.engine": config.warm_start.engine,
        }
        for section, values in sections.items():
            outside |= {f"{section}.{key}": getattr(values, key, None) for key in _OF_ENGINE}
    return {key: value for key, value in outside.items() if value and value not in _NOBODY}


def _model_files(config: RunConfig) -> dict[str, str | None]:
    """The files of the model that a run begins with, unless it only goes on from a checkpoint."""
    model = config.model
    adapted = model.lora is not None or is_adapter(Path(model.path))
    begins = RunDirectory(config.directory).last_checkpoint() is None
    if not (adapted or begins or config.train.get("beta")):
        return {}
    folder = model.path if Path(model.path).is_dir() else None
    return {"model.path": folder, "model.chat_template": model.template_file}


def check_links(directory: Path, *, use: str = "written") -> None:
    """Raise ConfigError for a link that leads out of a directory of somebody else; `use` says what
    would be done with its target."""
    for folder, folders, files in os.walk(directory):
        for link in filter(Path.is_symlink, (Path(folder, name) for name in (*folders, *files))):
            if not is_under(link.resolve(), [directory.resolve()]):
                raise ConfigError(
                    f"{link} is a link to {link.resolve()}, outside of {directory}, which would be "
                    f"{use}; if you trust it, add --trust"
                )


def resume_command(config: RunConfig) -> str:
    """The command that resumes a run, in as many processes if all are on this machine."""
    started = processes_started()
    several = f" --processes {started}" if 1 < started == processes_here() else ""
    trust = "" if is_own(config.directory) else " --trust"
    return f"agentsgym train --resume {shlex.quote(str(config.directory))}{several}{trust}"
