"""Replays trials in a separate process: reads a JSON request, prints their digests.

Run as `python -m agentsgym.checks.replay`; the request holds the `path` of the
environment's class, `sys_path`, `env_config`, `tasks` and `actions` (one list per trial).
"""

import json
import sys

from agentsgym.checks.playing import digest, play_alone, replay
from agentsgym.envs.registry import make


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    sys.path[:] = request["sys_path"]
    config = {**request["env_config"], "workers": 0}
    env = make(request["path"], None, config, trust=True)
    rollouts = play_alone(env, request["tasks"], replay(request["actions"]))
    sys.stdout.write(json.dumps([digest(rollout) for rollout in rollouts]) + "\n")


if __name__ == "__main__":
    main()
