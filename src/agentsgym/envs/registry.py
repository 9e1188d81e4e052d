"""Names for environments, and the rule that a dataset must not be able to run code."""

import re
from collections.abc import Mapping
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.builtin import SHIPPED
from agentsgym.types import (
    AllowImports,
    AllowPaths,
    ImportRefused,
    Tokenizer,
    allowed_directories,
    import_path,
)

_PATHS: dict[str, str] = {name: shipped.path for name, shipped in SHIPPED.items()}
_CLASSES: dict[str, type[MultistepEnv]] = {}


class UnknownEnvironment(LookupError):
    """No environment goes by this name, or its path may not be imported."""


def register(name: str, env_class: type[MultistepEnv]) -> None:
    """Make an environment known under `name`; an earlier one of that name is replaced.

    Raises TypeError where `env_class` is not a subclass of MultistepEnv, ValueError for a name
    that is not a word (slashes may divide it).
    """
    if not (isinstance(env_class, type) and issubclass(env_class, MultistepEnv)):
        raise TypeError(f"{env_class!r} is not a subclass of MultistepEnv")
    if not re.fullmatch(r"\w[\w-]*(/\w[\w-]*)*", name):
        raise ValueError(f"{name!r} is no name for an environment: letters, digits, _, -, / only")
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
    """Whether a registered name, an alias or a dotted path means this class; imports nothing."""
    if name_or_path == f"{env_class.__module__}.{env_class.__qualname__}":
        return True
    name = registered_name(env_class)
    return name is not None and name in (name_or_path, _alias(name_or_path))


def find(name_or_path: str, allow_imports: AllowImports = False) -> type[MultistepEnv]:
    """The class behind a registered name or a dotted path.

    A dotted path outside the agentsgym package that is not registered imports nothing unless
    `allow_imports` is True or holds its module or a package above it; one inside imports nothing
    unless it is an environment's. Raises UnknownEnvironment.
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
            f"no environment is registered as {name_or_path!r}; known: {', '.join(registered())}"
        )
    return _load(name_or_path, allow_imports)


def make(
    name_or_path: str,
    tokenizer: Tokenizer | None = None,
    env_config: Mapping[str, Any] | None = None,
    *,
    allow_imports: AllowImports = False,
    allow_paths: AllowPaths = (),
    template_options: Mapping[str, Any] | None = None,
) -> MultistepEnv:
    """Make an environment by its registered name or dotted path (`find` says what is allowed).

    `env_config` is trusted to name files. A task (`task_data`) may name those of agentsgym's cache,
    of `ALFWORLD_DATA`, and of the directories in `env_config`, in `allow_paths` and in the variable
    AGENTSGYM_ALLOW_PATHS. `template_options` are further arguments of the tokenizer's chat template
    (`MultistepEnv.set_template_options`).
    """
    env = find(name_or_path, allow_imports)(tokenizer, env_config)
    if allow_paths:
        env.allow_paths = tuple(map(str, allowed_directories(allow_paths)))
    if template_options:
        env.set_template_options(template_options)
    return env


def _alias(path: str) -> str | None:
    """`agentsgym.envs.Name` and `agentsgym.envs.Name.NameEnv` mean the registered Name."""
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
    """Whether a dotted path is that of an environment here, in its module or a package above:
    data must not be able to import whatever else the package holds."""
    module, _, name = path.rpartition(".")
    homes = (known.rpartition(".") for known in _PATHS.values())
    return any(name == known and f"{home}.".startswith(f"{module}.") for home, _, known in homes)


def _load(path: str, allow_imports: AllowImports) -> type[MultistepEnv]:
    try:
        found = import_path(path, allow_imports)
    except ImportRefused as error:
        raise UnknownEnvironment(
            f"{error}; or call agentsgym.register(name, cls) before"
        ) from error
    if not (isinstance(found, type) and issubclass(found, MultistepEnv)):
        raise UnknownEnvironment(f"{path!r} is not a subclass of MultistepEnv")
    return found
