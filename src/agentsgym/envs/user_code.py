"""Code in the working directory: only what the user names is found there."""

import os
import sys

from agentsgym.envs.registry import registered


def is_foreign(name: str) -> bool:
    """Whether a name is a dotted path outside the package and the registered names."""
    return "." in name and not name.startswith("agentsgym.") and name not in registered()


def import_from_here(*names: str) -> None:
    """Let the dotted paths that the user named be found in the working directory.

    It comes last on Python's path, so that nothing in it is taken for an installed module, and it
    is not there at all where no name needs it: a directory that was only entered runs nothing.
    """
    here = os.getcwd()
    if here not in sys.path and any(map(is_foreign, names)):
        sys.path.append(here)
