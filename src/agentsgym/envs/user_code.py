"""Code in the working directory: only modules that the user names are found there."""

import os
import sys

from agentsgym.envs.registry import registered


def is_foreign(name: str) -> bool:
    """Whether a name is a dotted path outside the package and not registered."""
    return "." in name and not name.startswith("agentsgym.") and name not in registered()


def import_from_here(*names: str) -> None:
    """Let Python find the user's dotted paths in the working directory.

    The directory comes last on Python's path, so that it cannot shadow an installed module. It is
    not added if no name needs it: entering a directory must not run code from it.
    """
    here = os.getcwd()
    if here not in sys.path and any(map(is_foreign, names)):
        sys.path.append(here)
