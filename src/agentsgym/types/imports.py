"""Imports by dotted path. A dataset or a config must not be able to run code."""

import importlib
from collections.abc import Collection
from typing import Any

AllowImports = bool | Collection[str]
"""Dotted paths outside the package that may be imported: all, none, or these module prefixes."""


class ImportRefused(LookupError):
    """A dotted path may not be imported, or nothing exists there; the message says which."""


def import_path(path: str, allow_imports: AllowImports = False) -> Any:
    """The object at a dotted path.

    `allow_imports` must be True, or contain the object's module or a package above it. Raises
    ImportRefused.
    """
    module_name, _, name = path.rpartition(".")
    if not _allowed(module_name, allow_imports):
        raise ImportRefused(
            f"importing {path!r} is not allowed: pass allow_imports=True (or the module names "
            "you trust)"
        )
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ImportRefused(f"cannot load {path!r}: {error}") from error


def _allowed(module: str, allow_imports: AllowImports) -> bool:
    if isinstance(allow_imports, bool):
        return allow_imports
    return any(module == name or module.startswith(f"{name}.") for name in allow_imports)
