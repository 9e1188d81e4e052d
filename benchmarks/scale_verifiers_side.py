"""verifiers' side of `scale.py`, in its own virtual environment.

    python scale_verifiers_side.py SESSIONS TURNS

plays the games 0 to SESSIONS - 1 at once and prints one JSON object: steps, seconds, CPU seconds,
and each game's reward.
"""

import asyncio
import json
import logging
import sys
import time
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

_CONTEXT = vf.ModelContext(
    model="scale",
    client=vf.EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="NO_KEY"),
)


def environment(sessions: int, turns: int) -> Any:
    """verifiers' environment with our taskset and harness."""
    taskset = {"id": "scale_v1", "games": sessions, "turns": turns}
    player = {"harness": {"id": "scale_v1"}, "runtime": {"type": "subprocess"}}
    return load_environment(resolve_env_config({"taskset": taskset, "player": player}))


async def play(env: Any) -> tuple[list[Any], float, float]:
    """All episodes at once, as verifiers' own runner starts them; seconds, CPU seconds."""
    async with env.serving():
        slots = [slot for task in env.taskset.load() for slot in env.slots(task)]
        start, cpu = time.perf_counter(), time.process_time()
        episodes = await asyncio.gather(*(env.run_slot(slot, _CONTEXT) for slot in slots))
        return episodes, time.perf_counter() - start, time.process_time() - cpu


def main() -> None:
    sessions, turns = map(int, sys.argv[1:3])
    logging.disable(logging.WARNING)
    asyncio.run(play(environment(2, turns)))
    episodes, seconds, cpu = asyncio.run(play(environment(sessions, turns)))
    failed = [error for episode in episodes for error in episode.errors]
    if failed:
        sys.exit(f"verifiers failed: {failed[0]}")
    traces = [episode.traces[0] for episode in episodes]
    played = {
        "steps": sum(trace.num_turns for trace in traces),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "rewards": [trace.reward for trace in traces],
    }
    print(json.dumps(played))


if __name__ == "__main__":
    main()
