"""Decides which code and which files a run's configuration may name.

A configuration that the user writes is trusted. A configuration from a run directory is not,
because the directory may come from anybody: the user must explicitly allow everything it names.
"""

import json
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentsgym.envs import ConfigError, find
from agentsgym.envs.row_paths import check_paths, given_paths
from agentsgym.envs.row_reach import reach_of
from agentsgym.envs.user_code import is_foreign
from agentsgym.runs.adapters import is_adapter
from agentsgym.runs.config import RunConfig
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.model_config import ModelConfig
from agentsgym.types.paths import allowed_directories, is_allowed, real_path
from agentsgym.types.text import mask_secrets


@dataclass(frozen=True, slots=True)
class Allowed:
    """The user's permissions: modules to import, and directories or files that may be named."""

    imports: bool | tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """A dotted path in each of the modules."""
        return [] if isinstance(self.imports, bool) else [f"{name}.*" for name in self.imports]

    def allows(self, module: str) -> bool:
        """Whether a module may be imported."""
        if isinstance(self.imports, bool):
            return self.imports
        return any(module == name or module.startswith(f"{name}.") for name in self.imports)

    def and_named_in(self, overrides: Mapping[str, Any]) -> "Allowed":
        """These permissions and the names in the user's own `KEY=VALUE` arguments."""
        modules = [module_of(str(overrides.get(key, ""))) for key in _CODE_KEYS]
        more = self.and_also(overrides.get("train.allow_imports") or (), filter(None, modules))
        return more.and_paths(overrides.get("train.allow_paths") or ())

    def and_trusted_in(self, config: RunConfig) -> "Allowed":
        """These permissions and the names in a configuration of the user's own."""
        more = self.and_also(trusted_imports(config), map(module_of, named_code(config)))
        models = [path for _, path in model_files(config.model)]
        named = [*_named_paths(config), *models]
        return more.and_paths([*named, *(config.train.get("allow_paths") or ())])

    def and_also(self, given: bool | Collection[str], modules: Iterable[str]) -> "Allowed":
        """These permissions and more modules; True for all."""
        if given is True or self.imports is True:
            return Allowed(True, self.paths)
        listed = () if isinstance(given, bool) else given
        mine = () if isinstance(self.imports, bool) else self.imports
        return Allowed(tuple(dict.fromkeys([*mine, *listed, *modules])), self.paths)

    def and_paths(self, paths: Collection[str]) -> "Allowed":
        """These permissions and more paths."""
        return Allowed(self.imports, tuple(dict.fromkeys([*self.paths, *paths])))


_SENDING = (
    "push_to_hub",
    "report_to",
    "log_completions_hub_repo",
    "logging_dir",
    "trackio_space_id",
    "trackio_bucket_id",
    "trackio_static_space_id",
    "engine_urls",
    "engine_key_env",
    "engine_launch",
    "engine_command",
    "engine_launch_args",
    "rollout_workers",
    "vllm_server_base_url",
    "vllm_server_host",
)
_OF_ENGINE = ("urls", "key_env", "launch", "command", "launch_args")
_CODE_KEYS = ("env", "train.advantage_estimator")


def module_of(name: str) -> str:
    """The module of a dotted path, "" for a name without dots."""
    return name.rpartition(".")[0]


def trusted_imports(config: RunConfig) -> bool | list[str]:
    """The dotted paths that dataset rows may name: those in `train.allow_imports`, and the module
    of the configuration's own environment."""
    given: bool | list[str] | None = config.train.get("allow_imports")
    if given is True:
        return True
    module = module_of(config.env)
    return [*(given or ()), *([module] if module else [])] or False


def named_code(config: RunConfig) -> list[str]:
    """The dotted paths outside the package that a configuration names: its environment, its
    estimator, and a member of each module that rows may import."""
    allowed = config.train.get("allow_imports") or ()
    modules = [] if isinstance(allowed, bool) else [f"{module}.*" for module in allowed]
    names = [config.env, str(config.train.get("advantage_estimator") or ""), *modules]
    return [name for name in dict.fromkeys(names) if is_foreign(name)]


def permitted(config: RunConfig, allowed: Allowed) -> RunConfig:
    """A configuration of the user's own, with the permissions given on the command line."""
    if not allowed.imports and not allowed.paths:
        return config
    imports = Allowed(allowed.imports).and_also(config.train.get("allow_imports") or (), ())
    paths = [*(config.train.get("allow_paths") or ()), *allowed.paths]
    return _with(config, imports.and_paths(paths))


def distrusted(
    config: RunConfig,
    allowed: Allowed,
    overrides: Mapping[str, Any] = MappingProxyType({}),
    own: RunConfig | None = None,
) -> RunConfig:
    """The configuration of a run directory, with the user's permissions instead of its own;
    `overrides` are the user's own settings, `own` is the preset or file that the user names.

    Raises ConfigError for code and files that it names and the user does not allow, and for servers
    of its environment that the user does not name.
    """
    for name in named_code(config):
        if not allowed.allows(module_of(name)):
            raise ConfigError(
                f"the run in {config.directory} names {name.removesuffix('.*')!r}, and importing "
                f"it runs its code. If you trust that code: --allow-imports {module_of(name)}"
            )
    imports = allowed.imports if isinstance(allowed.imports, bool) else list(allowed.imports)
    keys = find(config.env, imports).all_config_keys()
    try:
        stored = {k: v for k, v in config.env_config.items() if f"env_config.{k}" not in overrides}
        check_paths(config.env, keys, stored, allowed.paths)
    except ConfigError as error:
        raise ConfigError(f"{error}; here: --allow-paths DIRECTORY") from None
    _check_servers(config, reach_of(keys, stored), {} if own is None else own.env_config)
    _check_tasks(config, allowed, overrides)
    return _with(config, allowed)


def _check_tasks(config: RunConfig, allowed: Allowed, given: Collection[str]) -> None:
    directories = allowed_directories(allowed.paths)
    for key, path in task_files(config):
        if key not in given and not is_allowed(real_path(path), directories):
            raise ConfigError(
                f"the run in {config.directory} names {key} {path}; if you trust what is there: "
                f"--allow-paths {path}"
            )


def task_files(config: RunConfig) -> list[tuple[str, str]]:
    """The files of tasks that a configuration names, by their keys."""
    named = [("data.train", config.data.train), ("data.eval", config.data.eval)]
    return [(key, path) for key, path in named if path is not None]


def _check_servers(config: RunConfig, reach: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name, value in reach.items():
        if known.get(name) != value:
            raise ConfigError(
                f"the run in {config.directory} names the server env_config.{name}. If you trust "
                f"it, name it again: env_config.{name}={value} (eval, play: {name}={value})"
            )


def check_model(config: RunConfig, allowed: Allowed, given: Collection[str]) -> RunConfig:
    """The configuration of a run directory that will be continued: its model must already be on
    this machine. `given` are the keys that the user set.

    Raises ConfigError for a directory or a template file that it names, if the run still reads it
    and the user does not allow it.
    """
    if "model" in given or "model.path" in given:
        return config
    if reads_its_model(config):
        directories = allowed_directories(allowed.paths)
        for key, path in model_files(config.model):
            if key not in given and not is_allowed(real_path(path), directories):
                raise ConfigError(
                    f"the run in {config.directory} names {key} {path}; if you trust what is "
                    f"there: --allow-paths {path}"
                )
    return config.model_copy(update={"model": config.model.without_downloads()})


def reads_its_model(config: RunConfig) -> bool:
    """Whether a resumed run reads the model that it began with, and not only a checkpoint."""
    adapted = config.model.lora is not None or is_adapter(Path(config.model.path))
    begins = RunDirectory(config.directory).last_checkpoint() is None
    return adapted or begins or bool(config.train.get("beta"))


def model_files(model: ModelConfig) -> list[tuple[str, str]]:
    """The paths that the section `model` names, by their keys."""
    named = [("model.path", model.path)] if Path(model.path).is_dir() else []
    template = model.template_file
    return named + ([("model.chat_template", template)] if template is not None else [])


def names_same_model(own: ModelConfig, stored: ModelConfig) -> bool:
    """Whether the user's own section `model` names the model of a stored one, and its files."""
    return own.path == stored.path and set(model_files(stored)) <= set(model_files(own))


def check_sending(config: RunConfig, given: Collection[str], own: RunConfig | None = None) -> None:
    """Raise ConfigError if the configuration of a run directory would reach an address, send a key
    or data, or start a command; `given` are the keys that the user set, `own` is the preset or file
    that the user names."""
    known = set() if own is None else _sending(own).items()
    missing = {
        key: value
        for key, value in _sending(config).items()
        if key not in given and key.partition(".")[0] not in given and (key, value) not in known
    }
    if missing:
        again = " ".join(f"{key}={value}" for key, value in missing.items())
        raise ConfigError(
            f"the run in {config.directory} sets {', '.join(missing)}, which lets it reach others "
            f"or start programs. If this is intended, give it again: {again}"
        )


def _sending(config: RunConfig) -> dict[str, str]:
    """Keys and values, as they are given on a command line."""
    set_here = {f"train.{key}": config.train.get(key) for key in _SENDING}
    set_here |= {f"engine.{key}": getattr(config.engine, key) for key in _OF_ENGINE}
    set_here |= {f"answerer.{key}": config.answerer.get(key) for key in _OF_ENGINE}
    set_here |= _warm_start_reaches(config)
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in set_here.items()
        if value and value not in ("none", ["none"])
    }


def _warm_start_reaches(config: RunConfig) -> dict[str, Any]:
    """What a warm start of a pretrained model reads or asks elsewhere."""
    asked = config.warm_start.get("engine")
    found = {f"warm_start.{key}": config.warm_start.get(key) for key in ("run", "data")}
    if isinstance(asked, Mapping):
        found |= {f"warm_start.engine.{key}": asked.get(key) for key in _OF_ENGINE}
    return found


def _with(config: RunConfig, allowed: Allowed) -> RunConfig:
    """Everything that the configuration itself names is trusted from now on."""
    imports: bool | list[str] = True
    if not isinstance(allowed.imports, bool):
        imports = [name for name in allowed.imports if name != module_of(config.env)]
    paths = [path for path in allowed.paths if path not in config.env_config.values()]
    given = {"allow_imports": imports, "allow_paths": paths}
    kept = {key: value for key, value in config.train.items() if key not in given}
    train = kept | {key: value for key, value in given.items() if value}
    return config.model_copy(update={"train": train})


def resume_command(config: RunConfig) -> str:
    """The command that resumes a run, with the permissions that it needs."""
    modules = dict.fromkeys(map(module_of, named_code(config)))
    named = [*_named_paths(config), *_base_paths(config)]
    paths = dict.fromkeys([*(config.train.get("allow_paths") or ()), *named])
    flags = [("--allow-imports", module) for module in modules]
    flags += [("--allow-paths", path) for path in paths]
    words = ["agentsgym", "train", "--resume", str(config.directory)]
    given = [f"{key}={value}" for key, value in {**_sending(config), **_servers(config)}.items()]
    return mask_secrets(shlex.join([*words, *given, *(word for flag in flags for word in flag)]))


def _servers(config: RunConfig) -> dict[str, str]:
    keys = find(config.env, trusted_imports(config)).all_config_keys()
    return {f"env_config.{key}": value for key, value in reach_of(keys, config.env_config).items()}


def _base_paths(config: RunConfig) -> list[str]:
    return [path for _, path in model_files(config.model)] if reads_its_model(config) else []


def _named_paths(config: RunConfig) -> list[str]:
    keys = find(config.env, trusted_imports(config)).all_config_keys()
    own = [value for _, value in given_paths(keys, config.env_config)]
    return [*own, *(path for _, path in task_files(config))]
