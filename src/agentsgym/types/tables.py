"""Tables of entries that are selected by name; every entry is complete."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar


class Entry(Protocol):
    """A dataclass with a name."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """The name that selects the entry."""


E = TypeVar("E", bound=Entry)


def table(*entries: E) -> Mapping[str, E]:
    """The entries by name, in their order, read-only.

    Raises TypeError for an entry in which a field without a default is None or an empty text, and
    ValueError for a name that occurs twice. A table is built when its module is imported, so an
    incomplete entry is an error at import.
    """
    found: dict[str, E] = {}
    for entry in entries:
        _check_whole(entry)
        if entry.name in found:
            raise ValueError(f"{type(entry).__name__} {entry.name!r} stands twice in its table")
        found[entry.name] = entry
    return MappingProxyType(found)


def _check_whole(entry: Entry) -> None:
    for field in dataclasses.fields(entry):
        missing = dataclasses.MISSING
        required = field.default is missing and field.default_factory is missing
        if required and getattr(entry, field.name) in (None, "", ()):
            raise TypeError(f"{type(entry).__name__} {entry.name!r} has no {field.name}")
