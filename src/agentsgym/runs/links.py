"""Links in a run directory: it may be anybody's, and going on with it writes and deletes there."""

import os
from collections.abc import Iterator
from pathlib import Path

from agentsgym.envs import ConfigError
from agentsgym.types import AllowPaths, allowed_directories, is_allowed


def check_links(directory: Path, allow_paths: AllowPaths = ()) -> None:
    """Raise ConfigError for a link that leads out of the directory, unless to where the user
    allows it."""
    allowed = [directory.resolve(), *allowed_directories(allow_paths)]
    for link in _links(directory):
        target = link.resolve()
        if not is_allowed(target, allowed):
            raise ConfigError(
                f"{link} is a link to {target}, outside of the run, which would be written "
                f"there. If you trust it: --allow-paths {target}"
            )


def _links(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        paths = (Path(folder, name) for name in (*folders, *files))
        yield from filter(Path.is_symlink, paths)
