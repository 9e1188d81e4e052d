"""Many sessions at once in one process: what the library costs per step and session.

    python scale_sessions.py '{"at_once": 1000, "sessions": 2000, …}'

plays once, with the settings of `Case`, and prints one JSON object. `scale.py` starts a process for
each figure, so that no run sees the memory of another.
"""

import gc
import json
import logging
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import scale_game as game


@dataclass(frozen=True)
class Case:
    """`sessions` games of at most `turns` turns, `at_once` at a time. `slower` multiplies the
    latencies; `traced` measures memory with tracemalloc instead of the resident set. The engine
    answers all requests at once, or with `places` only so many."""

    at_once: int
    sessions: int
    turns: int
    tokenizer: str
    slower: float = 1.0
    traced: bool = False
    places: int | None = None


def measured(case: Case) -> dict[str, Any]:
    """The figures of a case, from a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{case} failed: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def rows_of(sessions: int, turns: int, first: int = 0) -> list[dict[str, Any]]:
    """Dataset rows of the games `first`, `first` + 1, …"""
    return [
        {
            "env_class_path": "benchmarks/Scale",
            "env_config": {"max_steps_per_episode": turns},
            "task_data": {"game": number, "turns": game.turns(number, turns)},
        }
        for number in range(first, first + sessions)
    ]


def played(case: Case) -> dict[str, Any]:
    """Play a case in this process."""
    from scale_engine import LatencyEngine
    from scale_env import tokenizer_of
    from scale_queue import QueueEngine

    from agentsgym.agents import DirectOutputAgent
    from agentsgym.rollout import run
    from agentsgym.types import SamplingParams

    tokenizer = tokenizer_of(case.tokenizer)
    warm = DirectOutputAgent(LatencyEngine(tokenizer, 64, slower=0), SamplingParams(64))
    run(rows_of(64, case.turns, 10**6), warm)
    engine: Any = (
        LatencyEngine(tokenizer, case.at_once, case.sessions, slower=case.slower)
        if case.places is None
        else QueueEngine(tokenizer, case.at_once, case.sessions, case.places)
    )
    rows = rows_of(case.sessions, case.turns)
    memory = Memory(case.traced)
    start, cpu = time.perf_counter(), time.thread_time()
    batch = run(rows, DirectOutputAgent(engine, SamplingParams(64)))
    seconds, cpu = time.perf_counter() - start, time.thread_time() - cpu - engine.own_cpu
    grown = memory.grown()
    _demand_right(batch, rows)
    steps = sum(row["task_data"]["turns"] for row in rows)
    return {
        "steps": steps,
        "tokens_per_session": round(sum(len(r.token_ids) for r in batch.rows) / case.sessions),
        "overhead_us": 1e6 * cpu / steps,
        "engine_us": 1e6 * engine.own_cpu / steps,
        "kib_per_session": grown / case.sessions / 1024,
        "occupancy": engine.window.occupancy() if case.places is None else None,
        "taken": None if case.places is None else engine.taken.shares(),
        "steps_per_second": steps / seconds,
    }


class Memory:
    """The peak of this process's memory above what it held at construction."""

    def __init__(self, traced: bool) -> None:
        gc.collect()
        self._traced = traced
        if traced:
            tracemalloc.start()
        self._before = _resident()

    def grown(self) -> int:
        """Bytes; with `traced`, those of Python's own allocations."""
        if self._traced:
            return tracemalloc.get_traced_memory()[1]
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._before


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _demand_right(batch: Any, rows: list[Mapping[str, Any]]) -> None:
    """End without figures unless every game was played to its end with the answers drawn for it."""
    for rollout, row in zip(batch.rollouts, rows, strict=True):
        number, turns = row["task_data"]["game"], row["task_data"]["turns"]
        if rollout.failed:
            sys.exit(rollout.error)
        said = [step.action for step in rollout.episodes[0].steps]
        if said != answers(number, turns) or rollout.final_reward != game.reward(turns, said[-1]):
            sys.exit(f"game {number} was not played as drawn: {said}")


def answers(number: int, turns: int) -> list[str]:
    """All answers that a game gets."""
    draws = (game.drawn("request", number, turn) for turn in range(turns))
    return [game.text_of(game.text_number(draw)) for draw in draws]


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(played(Case(**json.loads(sys.argv[1])))))
