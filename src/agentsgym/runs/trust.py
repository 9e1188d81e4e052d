"""Whom a run's configuration may obey. The user's own file and command line may name any code, file
and server, and so may the directories that this user's own commands made. A directory of somebody
else is data: an evaluation lets it name registered things only, and it is not resumed, unless the
user says `--trust`."""

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
from agentsgym.runs.processes import processes_here, processes_started
from agentsgym.runs.settings import RunConfig
from agentsgym.types import Trust, is_under, with_modules_of
from agentsgym.types.names import import_from_here, is_foreign

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


def check_untrusted(config: RunConfig, overrides: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Raise ConfigError for code, files and servers that the configuration of a directory of
    somebody else names for an evaluation, except those that the user names too, in `overrides`."""

    def is_set(key: str) -> bool:
        return any(key == name or key.startswith(f"{name}.") for name in overrides)

    reach = _reach(config)
    if "env" not in reach or is_set("env"):
        outside = outside_of_env(config.env, config.env_config, trusted(config))
        reach |= {f"env_config.{key}": value for key, value in outside.items()}
    foreign = {key: value for key, value in reach.items() if not is_set(key)}
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


def _reach(config: RunConfig) -> dict[str, Any]:
    """The code and tasks outside the run's directory, by the key that names them."""
    estimator = str(config.train.get("advantage_estimator") or "")
    outside: dict[str, Any] = {
        "train.trust": config.train.get("trust"),
        "env": config.env if is_foreign(config.env) else None,
        "train.advantage_estimator": estimator if is_foreign(estimator) else None,
        "data.train": config.data.train,
        "data.eval": config.data.eval,
    }
    return {key: value for key, value in outside.items() if value}


def check_links(directory: Path) -> None:
    """Raise ConfigError for a link that leads out of a directory of somebody else."""
    for folder, folders, files in os.walk(directory):
        for link in filter(Path.is_symlink, (Path(folder, name) for name in (*folders, *files))):
            if not is_under(link.resolve(), [directory.resolve()]):
                raise ConfigError(
                    f"{link} is a link to {link.resolve()}, outside of {directory}; if you trust "
                    "it, add --trust"
                )


def resume_command(config: RunConfig) -> str:
    """The command that resumes a run, in as many processes if all are on this machine."""
    started = processes_started()
    several = f" --processes {started}" if 1 < started == processes_here() else ""
    trust = "" if is_own(config.directory) else " --trust"
    return f"agentsgym train --resume {shlex.quote(str(config.directory))}{several}{trust}"
