"""Replays trials in a process of its own: reads a JSON request, prints the records' digests.

Run as `python -m agentsgym.testing.replay`; the request holds `name`, `env_config`, `tasks` and
`actions` (one list per trial).
"""

import json
import sys

from agentsgym.envs.registry import make
from agentsgym.testing.players import Replay
from agentsgym.testing.playing import play_alone


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    env = make(request["name"], None, request["env_config"])
    records = play_alone(env, request["tasks"], Replay(request["actions"]))
    sys.stdout.write(json.dumps([record.digest for record in records]) + "\n")


if __name__ == "__main__":
    main()
