"""Names of environments. A dataset can only name registered classes, so it cannot run code."""

import re
from collections.abc import Mapping
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.builtin import BUILTIN, DOORS
from agentsgym.types import (
    ImportRefused,
    Tokenizer,
    Trust,
    import_path,
)
from agentsgym.types.errors import did_you_mean

_PATHS: dict[str, str] = {name: env.path for name, env in {**BUILTIN, **DOORS}.items()}
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
    for name, known in _CLASSES.items():
        if known is env_class:
            return name
    path = f"{env_class.__module__}.{env_class.__qualname__}"
    return next((name for name, known in _PATHS.items() if known == path), None)


def names_class(name_or_path: str, env_class: type[MultistepEnv]) -> bool:
    """Whether a registered name, an alias or a dotted path is this class; imports nothing."""
    if name_or_path == f"{env_class.__module__}.{env_class.__qualname__}":
        return True
    name = registered_name(env_class)
    return name is not None and name in (name_or_path, _alias(name_or_path))


def find(name_or_path: str, trust: Trust = False) -> type[MultistepEnv]:
    """The class of a registered name or a dotted path.

    An unregistered dotted path outside the agentsgym package is only imported if `trust` is True
    or contains its module or a parent package. A path inside the package is only imported if it
    belongs to an environment. Raises UnknownEnvironment.
    """
    if name_or_path in _CLASSES:
        return _CLASSES[name_or_path]
    if name_or_path in _PATHS:
        return _load(_PATHS[name_or_path], True)
    alias = _alias(name_or_path)
    if alias is not None:
        return find(alias)
    registered_class = _registered_by_path(name_or_path)
    if registered_class is not None:
        return registered_class
    if _is_shipped(name_or_path):
        return _load(name_or_path, True)
    if "." not in name_or_path or name_or_path.startswith("agentsgym."):
        raise UnknownEnvironment(
            f"no environment is registered as {name_or_path!r}; "
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
    (`MultistepEnv.set_template_options`).
    """
    env = find(name_or_path, trust)(tokenizer, env_config)
    env.trusts_tasks = trust is True
    if template_options:
        env.set_template_options(template_options)
    return env


def _alias(path: str) -> str | None:
    """The registered Name that `agentsgym.envs.Name` or `agentsgym.envs.Name.NameEnv` means."""
    match = re.fullmatch(r"agentsgym\.envs\.(\w+)(?:\.(\w+)Env)?", path)
    if match is None or match[1] not in registered():
        return None
    return match[1] if match[2] in (None, match[1]) else None


def _registered_by_path(path: str) -> type[MultistepEnv] | None:
    for known in _CLASSES.values():
        if f"{known.__module__}.{known.__qualname__}" == path:
            return known
    return None


def _is_shipped(path: str) -> bool:
    """Whether a dotted path is that of an environment in this package, or is in its module or a
    parent package: data must not be able to import other parts of the package."""
    module, _, name = path.rpartition(".")
    homes = (known.rpartition(".") for known in _PATHS.values())
    return any(name == known and f"{home}.".startswith(f"{module}.") for home, _, known in homes)


def _load(path: str, trust: Trust) -> type[MultistepEnv]:
    try:
        found = import_path(path, trust)
    except ImportRefused as error:
        raise UnknownEnvironment(
            f"{error}; or call agentsgym.register(name, cls) before"
        ) from error
    if not (isinstance(found, type) and issubclass(found, MultistepEnv)):
        raise UnknownEnvironment(f"{path!r} is not a subclass of MultistepEnv")
    return found
