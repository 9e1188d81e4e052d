"""Generates the games of the tasks on standard input; run with `python -m agentsgym.envs.alfworld`.

Input: a JSON list of tasks with `game_file`, `task_type`, `split` and `seed`.
"""

import json
import sys
from pathlib import Path

from agentsgym.envs.alfworld.generator import generate


def main() -> None:
    """Make every game that does not exist yet."""
    for task in json.load(sys.stdin):
        folder = Path(task["game_file"]).parent
        generate(folder, task["task_type"], task["split"], task["seed"])


if __name__ == "__main__":
    main()
