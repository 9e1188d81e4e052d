"""File paths in dataset rows: a dataset must not make us read or write outside allowed folders."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

AllowPaths = Collection[str]
"""Directories in which dataset rows may name files (a single one may be given as a string)."""

VARIABLE = "AGENTSGYM_ALLOW_PATHS"
"""The environment variable that lists more directories, separated as in PATH."""


class PathRefused(ValueError):
    """A path lies in no allowed directory; the message says how to allow it."""


def real_path(path: str | Path) -> Path:
    """The absolute path with variables, `~`, links and `..` resolved."""
    return Path(os.path.expandvars(path)).expanduser().resolve()


def allowed_directories(given: AllowPaths = ()) -> list[Path]:
    """The directories that the caller allows, and those listed in the environment variable."""
    mine = [given] if isinstance(given, str | Path) else given
    listed = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [real_path(path) for path in (*mine, *listed) if path]


def is_allowed(real: Path, allowed: Iterable[Path]) -> bool:
    """Whether a real path is one of `allowed` or lies under one."""
    return any(real.is_relative_to(directory) for directory in allowed)


def checked_path(path: str, allowed: Iterable[Path]) -> Path:
    """The real path if it is allowed. Raises PathRefused otherwise."""
    real = real_path(path)
    if is_allowed(real, allowed):
        return real
    raise PathRefused(
        f"{str(path)[:500]!r} is outside the directories that dataset rows may name; if you trust "
        f"what is there, allow its directory: allow_paths=[…], or {VARIABLE} in the environment"
    )
