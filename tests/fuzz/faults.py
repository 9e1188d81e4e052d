"""`python -m fuzz.faults [--faults N] [--steps N]`: a training in a storm.

Environments raise and hang in worker processes, workers are killed, requests are canceled, servers
answer with errors, cut connections, stall and die, and the disk is full now and then. The learning
rate is 0, so each rollout that nothing happened to must equal that of a calm training. Prints one
line of JSON with what was injected, what was lost, and memory and open files over the steps.
"""

import argparse
import copy
import errno
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from agentsgym import register
from agentsgym.envs import task_dataset
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.http import Retries
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout.processes.worker import stop_workers, workers
from completions_server import CompletionsServer
from fuzz.fragile import FragileEnv, fate
from fuzz.parts import chat_tokenizer, tiny_model

KINDS = ("error", "busy", "cut", "stall", "garbage")
WEIGHTS = (8, 8, 8, 1, 2)
# The last: a worker that was killed again while it was started.
EXPECTED = (
    "told to fail",
    "the request was cancelled",
    "token_ids",
    "gave no answer within",
    "a worker process could not be started: the worker process died",
)
ROLLOUTS = 4
TASKS = 4
PATIENT = Retries(attempts=20, first_delay=0.02, longest_delay=0.5)


class Storm:
    """Draws faults and counts them; None of them while `calm`."""

    def __init__(self, seed: int, share: float) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._share = share
        self._lock = threading.Lock()
        self.over = False

    def server_fault(self, server: CompletionsServer) -> Any:
        """What goes wrong with a completion."""
        with self._lock:
            if self._rng.random() > self._share:
                return None
            if self._rng.random() < 0.01:
                self.counts["server death"] += 1
                server.die_soon()
                threading.Timer(0.3, server.start).start()
                return "cut"
            [kind] = self._rng.choices(KINDS, weights=WEIGHTS)
            self.counts[f"server {kind}"] += 1
            return kind

    def kill_a_worker(self) -> None:
        """In most steps, kill a worker process a moment later, while the next ones are played."""
        if self._rng.random() < 0.6:
            threading.Timer(self._rng.uniform(0.0, 0.3), self._kill).start()

    def _kill(self) -> None:
        pids = [worker.pid for worker in workers(2) if worker.pid]
        if pids and not self.over:
            os.kill(self._rng.choice(pids), signal.SIGKILL)
            self.counts["worker killed"] += 1


class CancelingEngine(VLLMEngine):
    """Cancels one of its requests in some polls."""

    storm: Storm | None = None
    every = 60

    def poll(self) -> Any:
        if self.storm is not None and self._open:
            self._polls = getattr(self, "_polls", 0) + 1
            if self._polls % self.every == 0:
                self.cancel(sorted(self._open)[:1])
                self.storm.counts["request canceled"] += 1
        return super().poll()


class Record:
    """A rollout sink: what was played by (step, session), and now and then a full disk."""

    def __init__(self, full_at: frozenset[int] = frozenset(), storm: Storm | None = None) -> None:
        self.played: dict[tuple[int, str], Any] = {}
        self.usage: list[tuple[int, float, int]] = []
        self.full_at = set(full_at)
        self._storm = storm
        self._me = psutil.Process()

    def __call__(self, rollouts: Any, info: Any) -> None:
        step = info["step"]
        if self._storm is not None:
            self._storm.kill_a_worker()
        if step in self.full_at:
            self.full_at.discard(step)
            raise OSError(errno.ENOSPC, "No space left on device")
        for rollout in rollouts:
            self.played[step, rollout.session_id] = rollout
        megabytes = self._me.memory_info().rss / 2**20
        self.usage.append((step, round(megabytes, 1), self._me.num_fds()))


def train(folder: Path, steps: int, storm: Storm | None, record: Record) -> int:
    """Train for `steps` steps, going on from the last checkpoint after each full disk; returns how
    often that was."""
    servers: list[CompletionsServer] = []
    for _ in range(2):
        inner = EmbeddedEngine(copy.deepcopy(tiny_model()), chat_tokenizer(), capacity=16)
        servers.append(CompletionsServer(inner, stall_seconds=60))
    for server in servers:
        if storm is not None:
            server.fault = lambda _, server=server: storm.server_fault(server)
    full = 0
    try:
        while not _train_on(folder, steps, storm, record, servers, resume=full > 0):
            full += 1
    finally:
        for server in servers:
            server.close()
    return full


def _train_on(
    folder: Path, steps: int, storm: Storm | None, record: Record, servers: Any, *, resume: bool
) -> bool:
    """Train to the end; False where the disk was full before."""
    engine = CancelingEngine(
        [server.url for server in servers],
        chat_tokenizer(),
        capacity=32,
        request_timeout=3.0,
        retries=PATIENT,
    )
    engine.storm = storm
    try:
        _trainer(folder, steps, storm is None, engine, record).train(
            resume_from_checkpoint=resume and any(folder.glob("checkpoint-*"))
        )
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        return False
    finally:
        engine.close()
    return True


def _trainer(folder: Path, steps: int, calm: bool, engine: Any, record: Record) -> Any:
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer

    register("Fragile", FragileEnv)
    env = FragileEnv(chat_tokenizer(), {"workers": 2, "worker_timeout": 2.0})
    tasks = [{"rewards": [0.0] * (1 + k % 2), "calm": calm} for k in range(16)]
    config = GRPOEnvConfig(
        output_dir=str(folder),
        max_steps=steps,
        num_generations=ROLLOUTS,
        per_device_train_batch_size=ROLLOUTS * TASKS,
        max_action_tokens=3,
        learning_rate=0.0,
        save_steps=20,
        save_total_limit=2,
        save_only_model=False,
        logging_steps=50,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        min_signal_share=0.0,
    )
    return GRPOEnvTrainer(
        copy.deepcopy(tiny_model()),
        config,
        task_dataset(env, tasks),
        processing_class=chat_tokenizer(),
        engine=engine,
        rollout_sink=record,
    )


def compare(calm: Record, stormy: Record) -> dict[str, Any]:
    """Rollouts that failed, by reason, and how many of the others differ from the calm ones."""
    lost: Counter[str] = Counter()
    different = 0
    assert set(stormy.played) == set(calm.played)
    for key, rollout in stormy.played.items():
        if rollout.failed:
            reason = next((words for words in EXPECTED if words in rollout.error), "unexpected")
            lost[reason if reason != "unexpected" else rollout.error[-300:]] += 1
            different += any(row.agent_tokens for row in rollout.rows)
            continue
        different += _said(rollout) != _said(calm.played[key])
    return {"rollouts": len(stormy.played), "lost": dict(lost), "different": different}


def _said(rollout: Any) -> Any:
    rows = [(row.token_ids.tolist(), row.spans) for row in rollout.rows]
    return rows, rollout.final_reward


def main() -> int:
    """The status is 0 if nothing but what was hit is lost, and nothing grows."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.faults", description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--share", type=float, default=0.09, help="of requests that are hit")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    calm = Record()
    rng = random.Random(options.seed)
    storm = Storm(options.seed, options.share)
    full_at = rng.sample(range(options.steps), max(1, options.steps // 60))
    stormy = Record(frozenset(full_at), storm)
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder) / "calm", options.steps, None, calm)
        storm.counts["disk full"] = train(Path(folder) / "storm", options.steps, storm, stormy)
        storm.over = True
    for what in ("raises", "hangs"):
        storm.counts[f"environment {what}"] = sum(fate(name) == what for _, name in stormy.played)
    stop_workers()
    time.sleep(1)
    report = {
        "injected": sum(storm.counts.values()),
        "faults": dict(storm.counts),
        **compare(calm, stormy),
        "memory_mb_and_files": [entry for entry in stormy.usage if entry[0] % 50 == 49],
        "processes_left": len(psutil.Process().children(recursive=True)),
        "seconds": round(time.monotonic() - started, 1),
    }
    sys.stdout.write(json.dumps(report) + "\n")
    unexpected = any(reason not in EXPECTED for reason in report["lost"])
    return int(bool(unexpected or report["different"] or report["processes_left"]))


if __name__ == "__main__":
    sys.exit(main())
