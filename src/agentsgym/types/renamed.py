"""Old names of 0.1 in a module that has new ones."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed(
    module: str, names: Mapping[str, tuple[str, Callable[[], Any]]]
) -> Callable[[str], Any]:
    """A module's `__getattr__` for old names: each has its new name and makes its value."""

    def getattribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, value = names[name]
        warnings.warn(
            f"{module}.{name} is now {new}; the old name will go with agentsgym 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        return value()

    return getattribute
