"""Child interpreters that see the same modules as this one and never run its main script."""

import os
import sys


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` as a script; the working directory is not put on the path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment() -> dict[str, str]:
    """This process's environment with its module path, and one thread for numeric libraries."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
