"""Things that are found by name: entries of tables, names imported on first use, extras."""

import importlib
import importlib.metadata
import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar


class Entry(Protocol):
    """An object with a name."""

    @property
    def name(self) -> str:
        """The name that selects the entry."""


E = TypeVar("E", bound=Entry)


def table(*entries: E) -> Mapping[str, E]:
    """The entries by name, in their order, read-only. Raises ValueError for a name that occurs
    twice."""
    by_name: dict[str, E] = {}
    for entry in entries:
        if entry.name in by_name:
            raise ValueError(f"{type(entry).__name__} {entry.name!r} stands twice in its table")
        by_name[entry.name] = entry
    return MappingProxyType(by_name)


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's `__getattr__`: each name is imported from its submodule."""

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return getattribute


def install_command(extra: str) -> str:
    """The shell command that installs an extra of this package."""
    root = _source_tree()
    if root is not None:
        here = "." if root == Path.cwd() else str(root)
        return f"pip install -e {_quoted(f'{here}[{extra}]')}"
    url = _installed_from()
    if url is not None:
        return f"pip install {_quoted(f'agentsgym[{extra}] @ {url}')}"
    return f"pip install {_quoted(f'agentsgym[{extra}]')}"


def _source_tree() -> Path | None:
    """The clone that this package is imported from; None if it is not imported from a clone."""
    root = Path(__file__).resolve().parents[3]
    project = root / "pyproject.toml"
    if not project.is_file() or 'name = "agentsgym"' not in project.read_text(encoding="utf-8"):
        return None
    return root


def _installed_from() -> str | None:
    """The wheel, directory or repository that pip installed; None for a package index."""
    try:
        text = importlib.metadata.distribution("agentsgym").read_text("direct_url.json")
        data = json.loads(text or "{}")
        url: str | None = data.get("url")
        kind = data.get("vcs_info", {}).get("vcs")
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    return f"{kind}+{url}" if url and kind else url


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else shlex.quote(text)
