"""Optional packages: a missing one is answered with the command that installs it."""

import importlib
import importlib.util
from types import ModuleType

from agentsgym.types.install import install_command

# Which extra brings a package that the command line may find missing.
_EXTRAS = {
    "torch": "train",
    "accelerate": "train",
    "trl": "train",
    "aiohttp": "http",
    "peft": "vllm",
}


class MissingExtra(ImportError):
    """An optional extra is needed that is not installed.

    `name` is the extra's name and `command` the exact shell command that installs it.
    """

    def __init__(self, name: str, command: str) -> None:
        super().__init__(f"the extra {name!r} is not installed; install it with: {command}")
        self.name: str = name
        self.command = command


def missing_extra(error: ImportError) -> MissingExtra | None:
    """The extra that would have brought what could not be imported."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None or installed(str(error.name)):
        return None
    return MissingExtra(extra, install_command(extra))


def installed(module: str) -> bool:
    """Whether `module` could be imported; imports at most the packages above it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def ensure(module: str, extra: str) -> None:
    """Raise MissingExtra unless `module`, which `extra` brings, is installed; imports nothing."""
    if not installed(module):
        raise MissingExtra(extra, install_command(extra))


def require(module: str, extra: str) -> ModuleType:
    """Import and return `module`, which `extra` brings. Raises MissingExtra where it is absent.

    An error inside a module that is installed passes through unchanged.
    """
    ensure(module, extra)
    return importlib.import_module(module)
