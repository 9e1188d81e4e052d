"""ALFWorld: ours against the stock engine on the same games, memory, one and two workers.

`measure()` checks first that both engines tell the same, then times them. `python
benchmarks/environments_alfworld.py` prints the figures as one JSON line (about a minute).
"""

import hashlib
import json
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentsgym import make
from agentsgym.envs.alfworld.engine import HouseholdGame
from agentsgym.envs.alfworld.env import generated_tasks
from agentsgym.envs.alfworld.generator import TASK_TYPES
from agentsgym.rollout.processes.env import hosted
from agentsgym.rollout.processes.worker import stop_workers, workers

STEPS = 25
SESSIONS = 12
ROUNDS = 3

Task = Any


def measure() -> dict[str, float]:
    """Steps per second, their ratio, seconds to start a game, MB per session.

    Raises AssertionError where the transcripts of the two engines differ.
    """
    with tempfile.TemporaryDirectory() as folder:
        tasks = generated_tasks(Path(folder), "train", list(TASK_TYPES), len(TASK_TYPES))
        figures = _engines(tasks)
        figures |= _memory(tasks)
        for count in (1, 2):
            figures[f"alfworld_{count}_workers_steps_per_s"] = _in_workers(tasks, count)
        stop_workers()
    return figures


def _engines(tasks: list[Task]) -> dict[str, float]:
    first = _play(True, tasks)
    fast = min((_play(True, tasks) for _ in range(ROUNDS)), key=lambda played: played[1])
    slow = _play(False, tasks)
    assert first[0] == fast[0] == slow[0], "the transcripts differ"
    return {
        "alfworld_steps_per_s": 1 / fast[1],
        "alfworld_stock_steps_per_s": 1 / slow[1],
        "alfworld_speedup": slow[1] / fast[1],
        "alfworld_start_s": fast[2],
        "alfworld_first_start_s": first[2],
        "alfworld_stock_start_s": slow[2],
    }


def _play(fast: bool, tasks: list[Task]) -> tuple[str, float, float]:
    """A hash of the transcripts, CPU seconds per step, median CPU seconds to start a game."""
    digest, seconds, count, starts = hashlib.sha256(), 0.0, 0, []
    for number, task in enumerate(tasks):
        rng = random.Random(number)
        began = time.process_time()
        game = HouseholdGame(task["game_file"], fast=fast)
        starts.append(time.process_time() - began)
        for _ in range(STEPS):
            command = rng.choice(game.commands)
            began = time.process_time()
            game.step(command)
            seconds += time.process_time() - began
            count += 1
            digest.update(repr((command, game.text, game.commands, game.anchor)).encode())
            if game.won:
                break
    return digest.hexdigest(), seconds / count, statistics.median(starts)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def _memory(tasks: list[Task]) -> dict[str, float]:
    before = _resident_mb()
    games = [HouseholdGame(tasks[k % len(tasks)]["game_file"]) for k in range(SESSIONS)]
    for game in games:
        game.step("look")
    return {"alfworld_mb_per_session": (_resident_mb() - before) / len(games)}


def _in_workers(tasks: list[Task], count: int) -> float:
    """Steps per wall-clock second of SESSIONS sessions, stepped by one thread each."""
    env = hosted(make("ALFWorld", None, {"workers": count}))
    states = {}
    for k in range(SESSIONS):
        states[k] = env._initialize_episode(f"bench-{k}", dict(tasks[k % len(tasks)]))
    assert len({worker.pid for worker in workers(count)}) == count

    def play(k: int) -> int:
        rng = random.Random(k)
        for step in range(STEPS):
            text = env._format_prompt(states[k], step)
            listed = text.rpartition("Admissible commands: ")[2].rstrip(".").split(", ")
            states[k], _, done, _ = env._step_episode(f"bench-{k}", states[k], rng.choice(listed))
            if done:
                return step + 1
        return STEPS

    began = time.perf_counter()
    with ThreadPoolExecutor(SESSIONS) as threads:
        steps = sum(threads.map(play, range(SESSIONS)))
    return steps / (time.perf_counter() - began)


if __name__ == "__main__":
    print(json.dumps({name: round(value, 4) for name, value in measure().items()}))
