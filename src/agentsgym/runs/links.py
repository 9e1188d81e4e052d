"""Links in a run directory or a saved evaluation. It may come from anybody, and to continue it
writes and deletes files."""

import os
from collections.abc import Iterator
from pathlib import Path

from agentsgym.envs import ConfigError
from agentsgym.types import AllowPaths, allowed_directories, is_allowed


def check_links(
    directory: Path, allow_paths: AllowPaths = (), *, done: str = "written there"
) -> None:
    """Raise ConfigError for a link to a place outside the directory that the user does not
    allow; `done` says what would be done with the link's target."""
    allowed = [directory.resolve(), *allowed_directories(allow_paths)]
    for link in _links(directory):
        target = link.resolve()
        if not is_allowed(target, allowed):
            raise ConfigError(
                f"{link} is a link to {target}, outside of {directory}, which would be {done}. "
                f"If you trust it: --allow-paths {target}"
            )


def _links(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        paths = (Path(folder, name) for name in (*folders, *files))
        yield from filter(Path.is_symlink, paths)
