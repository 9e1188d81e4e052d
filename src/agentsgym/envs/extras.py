"""Optional packages: the error for a missing one contains the command that installs it."""

import importlib
import importlib.util
from types import ModuleType

from agentsgym.types.names import install_command

# The extra of each package that the command line may find missing.
_EXTRAS = {
    "torch": "train",
    "accelerate": "train",
    "trl": "train",
    "mcp": "mcp",
    "openenv": "openenv",
    "starlette": "endpoint",
    "uvicorn": "endpoint",
    "ray": "ray",
    "peft": "train",
    "bitsandbytes": "quantized",
    "inspect_ai": "inspect",
    "verifiers": "verifiers",
    "llguidance": "grammar",
}


class MissingExtra(ImportError):
    """A required extra is not installed.

    `name` is the extra's name and `command` the exact shell command that installs it.
    """

    def __init__(self, name: str, command: str) -> None:
        super().__init__(f"the extra {name!r} is not installed; install it with: {command}")
        self.name: str = name
        self.command = command


def missing_extra(error: ImportError) -> MissingExtra | None:
    """The extra that provides the module whose import failed; None if there is none."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None or installed(str(error.name)):
        return None
    return MissingExtra(extra, install_command(extra))


def installed(module: str) -> bool:
    """Whether `module` can be imported; imports at most its parent packages."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def ensure(module: str, extra: str) -> None:
    """Raise MissingExtra unless `module`, which `extra` provides, is installed; imports nothing."""
    if not installed(module):
        raise MissingExtra(extra, install_command(extra))


def require(module: str, extra: str) -> ModuleType:
    """Import and return `module`, which `extra` provides. Raises MissingExtra if it is missing.

    An error inside an installed module is not caught.
    """
    ensure(module, extra)
    return importlib.import_module(module)
