"""Naming files: a dataset must not be able to make us read or write where it likes."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

AllowPaths = Collection[str]
"""Directories under which dataset rows may name files (one alone may be given as a text)."""

VARIABLE = "AGENTSGYM_ALLOW_PATHS"
"""The environment variable that lists further ones, divided as PATH is."""


class PathRefused(ValueError):
    """A path lies in no directory that is allowed; the message says how to allow it."""


def real_path(path: str | Path) -> Path:
    """A path without variables, `~`, links and `..`."""
    return Path(os.path.expandvars(path)).expanduser().resolve()


def allowed_directories(given: AllowPaths = ()) -> list[Path]:
    """The directories that the caller allows and those that the environment variable lists."""
    mine = [given] if isinstance(given, str | Path) else given
    listed = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [real_path(path) for path in (*mine, *listed) if path]


def is_allowed(real: Path, allowed: Iterable[Path]) -> bool:
    """Whether a real path is one of `allowed` or lies under one."""
    return any(real.is_relative_to(directory) for directory in allowed)


def checked_path(path: str, allowed: Iterable[Path]) -> Path:
    """The real path, where it is allowed. Raises PathRefused."""
    real = real_path(path)
    if is_allowed(real, allowed):
        return real
    raise PathRefused(
        f"{str(path)[:500]!r} is outside the directories that dataset rows may name; if you trust "
        f"what is there, allow its directory: allow_paths=[…], or {VARIABLE} in the environment"
    )
