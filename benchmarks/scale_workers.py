"""Rollout workers on Ray against one: the same rollouts from the same server of drawn latencies.

The cluster, its workers, the server and the learner share this machine. Each worker has `places` of
its own, so that more of them can play more at once, until the cores are full.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import scale_env
import scale_game as game
import scale_sessions

from agentsgym.envs import EnvPool
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.types import Rollout, RolloutRequest, SamplingParams, session_seed

HERE = Path(__file__).resolve().parent


def compared(
    workers: Sequence[int], sessions: int, turns: int, places: int, tokenizer: str
) -> dict[str, Any]:
    """Steps per second by number of workers, if all played the same rollouts."""
    try:
        import ray
    except ImportError:
        return {"workers_why": "Ray is not installed (agentsgym[ray])"}
    rates: dict[int, float] = {}
    played: list[list[tuple[int, ...]]] = []
    with server(tokenizer) as url:
        ray.init(num_cpus=max(workers), include_dashboard=False, log_to_driver=False)
        try:
            for number in workers:
                rates[number], ids = _played(url, number, sessions, turns, places, tokenizer)
                played.append(ids)
        finally:
            ray.shutdown()
    if any(ids != played[0] for ids in played):
        sys.exit("no ratio: other rollouts with another number of workers")
    return {
        "worker_places": places,
        "cores": os.cpu_count(),
        "steps_per_second_by_workers": {number: round(rate) for number, rate in rates.items()},
        "workers_over_one": {n: round(rate / rates[workers[0]], 2) for n, rate in rates.items()},
    }


def _played(
    url: str, workers: int, sessions: int, turns: int, places: int, tokenizer: str
) -> tuple[float, list[tuple[int, ...]]]:
    """Steps per second, after some games by which the workers start; the rollouts' token ids."""
    from agentsgym.rollout.rollout_workers.source import RaySource

    made = scale_env.tokenizer_of(tokenizer)
    engine = VLLMEngine(url, made, capacity=places * workers)
    source = RaySource(
        engine, EnvPool(made), SamplingParams(64), workers=workers, resources={"num_cpus": 1}
    )
    try:
        _take(source, _requests(4 * workers, turns, 10**6))
        requests = _requests(sessions, turns)
        start = time.perf_counter()
        rollouts = _take(source, requests)
        seconds = time.perf_counter() - start
    finally:
        source.close()
        engine.close()
    steps = sum(len(rollout.episodes[0].steps) for rollout in rollouts)
    return steps / seconds, [rollout.rows[0].token_ids for rollout in rollouts]


def _requests(sessions: int, turns: int, first: int = 0) -> list[RolloutRequest]:
    rows = scale_sessions.rows_of(sessions, turns, first)
    return [RolloutRequest.of(row, k, 0, session_seed(first, k)) for k, row in enumerate(rows)]


def _take(source: Any, requests: list[RolloutRequest]) -> Sequence[Rollout]:
    """The rollouts of requests, checked, in their order."""
    source.submit(requests)
    found: dict[str, Rollout] = {}
    while len(found) < len(requests):
        found |= {rollout.session_id: rollout for rollout in source.poll()}
    return checked([found[request.session_id] for request in requests])


def checked(rollouts: Sequence[Rollout]) -> Sequence[Rollout]:
    """The rollouts, if each was played to its end and earned what its last action earns."""
    for rollout in rollouts:
        turns = rollout.task_data["turns"]
        if rollout.failed:
            sys.exit(rollout.error)
        said = rollout.episodes[0].steps[-1].action
        if rollout.final_reward != game.reward(turns, said):
            sys.exit(f"{rollout.session_id} earned {rollout.final_reward}")
    return rollouts


@contextmanager
def server(tokenizer: str) -> Iterator[str]:
    """A latency server in a process of its own."""
    command = [sys.executable, "-W", "ignore", str(HERE / "scale_server.py"), tokenizer]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin and server.stdout
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()
            server.wait(60)
