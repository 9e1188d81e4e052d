"""What a step costs this process where the engine is a server that it asks over HTTP.

The server of drawn latencies has a process of its own. What is measured is the CPU time of this
process, all its threads: the scheduler's, and the one that sends requests and reads answers. They
share Python's lock, so their sum is what limits the steps per second of a process.
"""

import time
from typing import Any

import scale_sessions
import scale_workers
from scale_env import tokenizer_of

from agentsgym.agents import DirectOutputAgent
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout import run
from agentsgym.types import SamplingParams


def measured(at_once: int, sessions: int, turns: int, tokenizer: str) -> dict[str, Any]:
    """CPU microseconds of this process per step, after games that warm up."""
    made = tokenizer_of(tokenizer)
    with scale_workers.server(tokenizer) as url:
        engine = VLLMEngine(url, made, capacity=at_once)
        agent = DirectOutputAgent(engine, SamplingParams(64))
        try:
            run(scale_sessions.rows_of(at_once, turns, 10**6), agent)
            rows = scale_sessions.rows_of(sessions, turns)
            start, cpu = time.perf_counter(), time.process_time()
            rollouts = run(rows, agent).rollouts
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        finally:
            engine.close()
    scale_workers.checked(rollouts)
    steps = sum(len(rollout.episodes[0].steps) for rollout in rollouts)
    return {
        "http_sessions": at_once,
        "http_us": round(1e6 * cpu / steps, 1),
        "http_steps_per_second": round(steps / seconds),
    }
