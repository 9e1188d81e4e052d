"""What data may name. Dataset rows and the directories of others must not be able to run code or to
make us read or write arbitrary files."""

import importlib
import os
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from agentsgym.types.errors import did_you_mean

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
    if not trusts_module(trust, module):
        raise ImportRefused(
            f"importing {path!r} runs its code; if you trust it, say so: trust=[{module!r}], "
            f"train.trust=[{module}] in a run"
        )
    try:
        found = importlib.import_module(module)
        return getattr(found, name)
    except ModuleNotFoundError as error:
        raise ImportRefused(f"cannot load {path!r}: {error}") from error
    except AttributeError as error:
        public = [other for other in vars(found) if not other.startswith("_")]
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
    return Path(os.path.expandvars(path)).expanduser().resolve()


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
