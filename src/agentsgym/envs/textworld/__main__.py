"""Runs the real `tw-make` for a list of games; run with `python -m`.

Reads a JSON list of [arguments, game file] from standard input. The generator's games depend on
the hash seed, so it must be started with PYTHONHASHSEED=0.
"""

import importlib.metadata
import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from agentsgym.envs.command_game import published


def tw_make() -> str:
    """The path of the script that the package installs. Raises LookupError if it is missing."""
    for file in importlib.metadata.files("textworld") or ():
        if file.name == "tw-make":
            return str(file.locate())
    raise LookupError("the installed textworld has no tw-make")


def make(arguments: Sequence[str], game_file: Path) -> None:
    """Make one game; its folder appears only when it is complete."""
    with published(game_file.parent) as scratch:
        output = str(scratch / game_file.name)
        sys.argv = ["tw-make", *arguments, "--output", output, "--silent", "-f"]
        runpy.run_path(tw_make(), run_name="__main__")


def main() -> None:
    """Make every game that does not exist yet."""
    for arguments, game_file in json.load(sys.stdin):
        if not Path(game_file).exists():
            make(arguments, Path(game_file))


if __name__ == "__main__":
    main()
