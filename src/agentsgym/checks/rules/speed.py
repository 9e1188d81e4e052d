"""The measurement of an environment's speed."""

import time

from agentsgym.checks.context import Context
from agentsgym.checks.players import Always, RandomPlayer, Replay
from agentsgym.checks.playing import play_alone
from agentsgym.checks.report import Finding

_SLOW = 20.0


def speed(context: Context) -> Finding:
    """Steps per second on one core, including the start of episodes. Never fails."""
    tasks = context.tasks(4)
    env = context.make(None)
    records = play_alone(env, tasks, RandomPlayer(context.seed, nonsense=0.0))
    replay = Replay([record.actions for record in records])
    began = time.perf_counter()
    steps = sum(record.steps for record in play_alone(env, tasks, replay))
    rate = steps / max(time.perf_counter() - began, 1e-9)
    began = time.perf_counter()
    play_alone(env, tasks, Always(""))
    begun = (time.perf_counter() - began) / len(tasks)
    warnings = (f"fewer than {_SLOW:g} steps per second",) if rate < _SLOW else ()
    text = f"{rate:,.0f} steps/s; {begun * 1000:.2f} ms for an episode of empty actions"
    numbers = {"steps_per_second": rate, "empty_episode_seconds": begun}
    return Finding("speed", True, text, warnings, numbers)
