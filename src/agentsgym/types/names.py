"""What is found by name: entries of tables, names imported on first use, extras; the error for a
name or setting that is not allowed; and what data may name: dataset rows and the directories of
others must not be able to run code or to make us read or write arbitrary files.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from agentsgym.types.text import visible

_MOST_LISTED = 40


class ConfigError(ValueError):
    """A key or value of a configuration that is not allowed; the message names both."""

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(message))


def unknown_key(key: str, allowed: Collection[str], prefix: str = "") -> str:
    """The sentence about an unknown key, with the most similar allowed ones."""
    return f"unknown key {prefix + key!r}; {did_you_mean(key, allowed, prefix)}"


def did_you_mean(name: str, allowed: Collection[str], prefix: str = "") -> str:
    """What somebody who wrote `name` may have meant, or, if there are few, what is allowed."""
    by_key = {other.casefold(): other for other in allowed}
    keys = difflib.get_close_matches(name.casefold(), by_key, n=3, cutoff=0.6)
    near = [by_key[key] for key in keys]
    if near:
        return f"did you mean {' or '.join(repr(prefix + other) for other in near)}?"
    if len(allowed) > _MOST_LISTED:
        return f"none of the {len(allowed)} names allowed here is similar"
    return f"allowed are {', '.join(prefix + other for other in sorted(allowed))}"


class Entry(Protocol):
    """An object with a name."""

    @property
    def name(self) -> str:
        """The name that selects the entry."""


E = TypeVar("E", bound=Entry)


def table(*entries: E) -> Mapping[str, E]:
    """The entries by name, in their order, read-only."""
    return MappingProxyType({entry.name: entry for entry in entries})


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's `__getattr__`: each name is imported from its submodule."""

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return getattribute


def install_command(extra: str) -> str:
    """The shell command that installs an extra of this package, which pip takes from where the
    package itself came from."""
    return f"pip install 'agentsgym[{extra}]'"


# -- what data may name --------------------------------------------------------------------------

Trust = bool | Collection[str]
"""What the caller trusts in data. False: it names registered things only. Names of modules: also
what these modules and the modules below them define. True: whatever it names, also files and
servers."""


class ImportRefused(LookupError):
    """A dotted path may not be imported, or nothing exists there; the message says which."""


class PathRefused(ValueError):
    """A path lies in no directory that data may name; the message says how to trust it."""


def import_path(path: str, trust: Trust = False) -> Any:
    """The object at a dotted path. Raises ImportRefused, also if its module is not trusted."""
    module, _, name = path.rpartition(".")
    if not all(part.isidentifier() for part in path.split(".")):
        raise ImportRefused(f"{path[:500]!r} is no dotted path of Python names")
    if not trusts_module(trust, module):
        raise ImportRefused(
            f"importing {path!r} runs its code; if you trust it, say so: trust=[{module!r}], "
            f"train.trust=[{module}] in a run"
        )
    try:
        parent = importlib.import_module(module)
        return getattr(parent, name)
    except ModuleNotFoundError as error:
        raise ImportRefused(f"cannot load {path!r}: {error}") from error
    except AttributeError as error:
        public = [other for other in vars(parent) if not other.startswith("_")]
        raise ImportRefused(
            f"cannot load {path!r}: {error}; {did_you_mean(name, public, f'{module}.')}"
        ) from error


def trusts_module(trust: Trust, module: str) -> bool:
    """Whether data may name what a module defines."""
    if isinstance(trust, bool):
        return trust
    names = [trust] if isinstance(trust, str) else trust
    return any(module == name or module.startswith(f"{name}.") for name in names)


def with_modules_of(trust: Trust, *names: str) -> Trust:
    """`trust`, and also the modules of dotted paths that the user wrote down; names without dots
    add nothing."""
    if trust is True:
        return True
    modules = [module for name in names if (module := name.rpartition(".")[0])]
    listed = [trust] if isinstance(trust, str) else list(trust or ())
    return [*dict.fromkeys([*listed, *modules])] or False


def real_path(path: str | Path) -> Path:
    """The absolute path with variables, `~`, links and `..` resolved."""
    return Path(os.path.realpath(Path(os.path.expandvars(path)).expanduser()))


def is_under(real: Path, directories: Iterable[Path]) -> bool:
    """Whether a real path is one of `directories` or lies under one."""
    return any(real.is_relative_to(directory) for directory in directories)


def checked_path(path: str, directories: Iterable[Path]) -> Path:
    """The real path of one that data names. Raises PathRefused if it is not under `directories`."""
    real = real_path(path)
    if is_under(real, directories):
        return real
    raise PathRefused(
        f"{str(path)[:500]!r} is outside the directories that data may name; if you trust the "
        "data: trust=True, train.trust=true in a run"
    )


def is_foreign(name: str) -> bool:
    """Whether a name is a dotted path outside the package and not registered."""
    return "." in name and not name.startswith("agentsgym.")


def import_from_here(*names: str) -> None:
    """Let Python find the user's dotted paths in the working directory.

    The directory comes last on Python's path, so that it cannot shadow an installed module. It is
    not added if no name needs it: entering a directory must not run code from it.
    """
    here = os.getcwd()
    if here not in sys.path and any(map(is_foreign, names)):
        sys.path.append(here)
