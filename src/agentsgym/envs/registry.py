"""Names of environments. A dataset can only name registered classes, so it cannot run code."""

import re
from collections.abc import Mapping
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.builtin import KNOWN
from agentsgym.types import (
    ImportRefused,
    Tokenizer,
    Trust,
    import_path,
)
from agentsgym.types.names import did_you_mean

_PATHS: dict[str, str] = {name: env.path for name, env in KNOWN.items()}
_CLASSES: dict[str, type[MultistepEnv]] = {}


class UnknownEnvironment(LookupError):
    """No environment has this name, or its path may not be imported."""


def register(name: str, env_class: type[MultistepEnv]) -> None:
    """Make an environment known as `name`; replaces an earlier one of that name.

    Raises TypeError if `env_class` is not a subclass of MultistepEnv, and ValueError if `name` is
    not made of words separated by slashes.
    """
    if not (isinstance(env_class, type) and issubclass(env_class, MultistepEnv)):
        raise TypeError(f"{env_class!r} is not a subclass of MultistepEnv")
    if not re.fullmatch(r"\w[\w-]*(/\w[\w-]*)*", name):
        raise ValueError(f"{name!r} is not a valid environment name: use letters, digits, _, -, /")
    _CLASSES[name] = env_class


def registered() -> list[str]:
    """All registered names, sorted."""
    return sorted({*_PATHS, *_CLASSES})


def registered_name(env_class: type[MultistepEnv]) -> str | None:
    """The name a class is registered under, or None."""
    by_class = (name for name, known in _CLASSES.items() if known is env_class)
    by_path = (name for name, path in _PATHS.items() if path == _path_of(env_class))
    return next(by_class, None) or next(by_path, None)


def class_named(name: str) -> type[MultistepEnv]:
    """The class of an environment of the package, by its own name. Raises AttributeError."""
    for env in KNOWN.values():
        if env.path.endswith(f".{name}"):
            return _load(env.path, True)
    raise AttributeError(f"no environment of agentsgym has the class {name}")


def names_class(name_or_path: str, env_class: type[MultistepEnv]) -> bool:
    """Whether a registered name or a dotted path is this class; imports nothing."""
    name = registered_name(env_class)
    return name_or_path == _path_of(env_class) or (
        name is not None and name == _registered_name(name_or_path)
    )


def find(name_or_path: str, trust: Trust = False) -> type[MultistepEnv]:
    """The class of a registered name or a dotted path.

    An unregistered dotted path outside the agentsgym package is only imported if `trust` is True
    or contains its module or a parent package. A path inside the package is only imported if it
    belongs to an environment. Raises UnknownEnvironment.
    """
    name = _registered_name(name_or_path)
    if name is not None:
        return _CLASSES[name] if name in _CLASSES else _load(_PATHS[name], True)
    if "." not in name_or_path or name_or_path.startswith("agentsgym."):
        raise UnknownEnvironment(
            f"no environment is registered as {name_or_path!r} (a class of your own has a dotted "
            f"path, such as my_module.MyEnv); "
            f"{did_you_mean(name_or_path, registered())}"
        )
    return _load(name_or_path, trust)


def make(
    name_or_path: str,
    tokenizer: Tokenizer | None = None,
    env_config: Mapping[str, Any] | None = None,
    *,
    trust: Trust = False,
    template_options: Mapping[str, Any] | None = None,
) -> MultistepEnv:
    """Make an environment by its registered name or dotted path (see `find` for what is allowed).

    `env_config` is trusted and may name any file. A task (`task_data`) may only name files in
    agentsgym's cache, in `ALFWORLD_DATA`, and in the directories that `env_config` names; with
    `trust=True` any file. `template_options` are extra arguments of the tokenizer's chat template
    (`MultistepEnv.with_tokenizer`).
    """
    env = find(name_or_path, trust)(tokenizer, env_config)
    env.trusts_tasks = trust is True
    return env.with_tokenizer(tokenizer, template_options) if template_options else env


def _registered_name(name_or_path: str) -> str | None:
    """The registered Name that a name or path means: `Name` itself, `agentsgym.envs.Name`,
    `agentsgym.envs.Name.NameEnv`, the path of its class, and for a class of this package also the
    path in a parent package."""
    paths = _PATHS | {name: _path_of(known) for name, known in _CLASSES.items()}
    if name_or_path in paths:
        return name_or_path
    module, _, class_name = name_or_path.rpartition(".")
    for name, path in paths.items():
        home, _, known = path.rpartition(".")
        above = home.startswith("agentsgym.") and f"{home}.".startswith(f"{module}.")
        if class_name == known and (module == home or above):
            return name
        if name_or_path in (f"agentsgym.envs.{name}", f"agentsgym.envs.{name}.{name}Env"):
            return name
    return None


def _path_of(env_class: type[MultistepEnv]) -> str:
    return f"{env_class.__module__}.{env_class.__qualname__}"


def _load(path: str, trust: Trust) -> type[MultistepEnv]:
    try:
        loaded = import_path(path, trust)
    except ImportRefused as error:
        raise UnknownEnvironment(
            f"{error}; or call agentsgym.register(name, cls) before"
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, MultistepEnv)):
        raise UnknownEnvironment(f"{path!r} is not a subclass of MultistepEnv")
    return loaded
