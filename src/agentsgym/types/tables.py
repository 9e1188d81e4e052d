"""Tables of entries that are selected by name; every entry is complete."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_origin, get_type_hints

from agentsgym.types.plain import short_repr


class Entry(Protocol):
    """A dataclass with a name."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """The name that selects the entry."""


E = TypeVar("E", bound=Entry)


def table(*entries: E) -> Mapping[str, E]:
    """The entries by name, in their order, read-only.

    Raises TypeError for an entry in which a field without a default is None or an empty text, or
    a declared dataclass, or tuple of them, is anything else, and ValueError for a name that occurs
    twice. A table is built when its module is imported, so an incomplete entry is an error at
    import.
    """
    found: dict[str, E] = {}
    for entry in entries:
        _check_whole(entry)
        if entry.name in found:
            raise ValueError(f"{type(entry).__name__} {entry.name!r} stands twice in its table")
        found[entry.name] = entry
    return MappingProxyType(found)


def _check_whole(entry: Entry) -> None:
    hints = get_type_hints(type(entry))
    required = _required(entry)
    for field in dataclasses.fields(entry):
        value, kind = getattr(entry, field.name), hints[field.name]
        if field.name in required and value in (None, "", ()):
            raise TypeError(f"{type(entry).__name__} {entry.name!r} has no {field.name}")
        if value is not None and not _is_of(value, kind):
            raise TypeError(
                f"{type(entry).__name__} {entry.name!r}: {field.name} must be "
                f"{getattr(kind, '__name__', kind)}, got {short_repr(value, 100)}"
            )


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of its declared kind. Only dataclasses, which must be complete, and tuples
    of them are looked at; all other kinds pass."""
    if get_origin(kind) is tuple:
        parts = [part for part in get_args(kind) if part is not ...]
        return isinstance(value, tuple) and all(_is_of(item, parts[0]) for item in value)
    if not dataclasses.is_dataclass(kind):
        return True
    assert isinstance(kind, type)
    return isinstance(value, kind) and "" not in _required(value).values()


def _required(entry: Any) -> dict[str, Any]:
    """The fields without a default, and their values."""
    missing = dataclasses.MISSING
    return {
        field.name: getattr(entry, field.name)
        for field in dataclasses.fields(entry)
        if field.default is missing and field.default_factory is missing
    }
