"""The folder for files that environments generate."""

import os
from pathlib import Path


def cache_folder(name: str, given: str | None = None) -> Path:
    """`given`, else the folder `name` in agentsgym's cache (XDG_CACHE_HOME or ~/.cache)."""
    if given is not None:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "agentsgym" / name
