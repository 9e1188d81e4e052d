"""A training in a storm; FUZZ_STEPS is its length.

Environments raise and hang in worker processes, workers are killed, servers answer with errors, cut
connections, stall and die, and the disk is full now and then. The learning rate is 0, so each
rollout that nothing happened to must equal that of a calm training.
"""

import copy
import errno
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentsgym import register
from agentsgym.envs import task_dataset
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.http import Retries
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout.processes.worker import stop_workers, workers
from completions_server import CompletionsServer
from fuzz.fragile import FragileEnv
from fuzz.parts import chat_tokenizer, tiny_model

KINDS = ("error", "busy", "cut", "stall", "garbage")
WEIGHTS = (8, 8, 8, 1, 2)
# The last: a worker that was killed again when it had been started anew.
EXPECTED = (
    "told to fail",
    "token_ids",
    "gave no answer within",
    "the worker process died",
)
STEPS = int(os.environ.get("FUZZ_STEPS", "20"))
SHARE = 0.09  # of the requests that are hit
ROLLOUTS = 4
TASKS = 4
PATIENT = Retries(attempts=20, first_delay=0.02, longest_delay=0.5)


class Storm:
    """Draws faults."""

    def __init__(self) -> None:
        self._rng = random.Random(0)
        self._lock = threading.Lock()
        self.over = False

    def server_fault(self, server: CompletionsServer) -> Any:
        """What goes wrong with a completion."""
        with self._lock:
            if self._rng.random() > SHARE:
                return None
            if self._rng.random() < 0.01:
                server.die_soon()
                threading.Timer(0.3, server.start).start()
                return "cut"
            return self._rng.choices(KINDS, weights=WEIGHTS)[0]

    def kill_a_worker(self) -> None:
        """In most steps, kill a worker process a moment later, while the next ones are played."""
        if self._rng.random() < 0.6:
            threading.Timer(self._rng.uniform(0.0, 0.3), self._kill).start()

    def _kill(self) -> None:
        pids = [worker.pid for worker in workers(2) if worker.pid]
        if pids and not self.over:
            os.kill(self._rng.choice(pids), signal.SIGKILL)


class Record:
    """A rollout sink: what was played by (step, session), and now and then a full disk."""

    def __init__(self, full_at: frozenset[int] = frozenset(), storm: Storm | None = None) -> None:
        self.played: dict[tuple[int, str], Any] = {}
        self.full_at = set(full_at)
        self._storm = storm

    def __call__(self, rollouts: Any, info: Any) -> None:
        step = info["step"]
        if self._storm is not None:
            self._storm.kill_a_worker()
        if step in self.full_at:
            self.full_at.discard(step)
            raise OSError(errno.ENOSPC, "No space left on device")
        for rollout in rollouts:
            self.played[step, rollout.session_id] = rollout


def train(folder: Path, storm: Storm | None, record: Record) -> None:
    """Train for `STEPS` steps, going on from the last checkpoint after each full disk."""
    servers: list[CompletionsServer] = []
    for _ in range(2):
        inner = EmbeddedEngine(copy.deepcopy(tiny_model()), chat_tokenizer(), capacity=16)
        servers.append(CompletionsServer(inner, stall_seconds=60))
    for server in servers:
        if storm is not None:
            server.fault = lambda _, server=server: storm.server_fault(server)
    resume = False
    try:
        while not _train_on(folder, storm, record, servers, resume=resume):
            resume = True
    finally:
        for server in servers:
            server.close()


def _train_on(
    folder: Path, storm: Storm | None, record: Record, servers: Any, *, resume: bool
) -> bool:
    """Train to the end; False where the disk was full before."""
    engine = VLLMEngine(
        [server.url for server in servers],
        chat_tokenizer(),
        capacity=32,
        request_timeout=3.0,
        retries=PATIENT,
    )
    try:
        _trainer(folder, storm is None, engine, record).train(
            resume_from_checkpoint=resume and any(folder.glob("checkpoint-*"))
        )
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        return False
    finally:
        engine.close()
    return True


def _trainer(folder: Path, calm: bool, engine: Any, record: Record) -> Any:
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer

    register("Fragile", FragileEnv)
    env = FragileEnv(chat_tokenizer(), {"workers": 2, "worker_timeout": 2.0})
    tasks = [{"rewards": [0.0] * (1 + k % 2), "calm": calm} for k in range(16)]
    config = GRPOEnvConfig(
        output_dir=str(folder),
        max_steps=STEPS,
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


def _outcome(rollout: Any) -> Any:
    rows = [(row.token_ids.tolist(), row.spans) for row in rollout.rows]
    return rows, rollout.final_reward


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_training_in_a_storm_loses_only_what_was_hit(tmp_path: Path) -> None:
    calm, storm = Record(), Storm()
    full_at = random.Random(0).sample(range(STEPS), max(1, STEPS // 60))
    stormy = Record(frozenset(full_at), storm)
    train(tmp_path / "calm", None, calm)
    train(tmp_path / "storm", storm, stormy)
    storm.over = True
    stop_workers()
    time.sleep(1)
    assert psutil.Process().children(recursive=True) == []
    assert set(stormy.played) == set(calm.played)
    failed = {key: rollout for key, rollout in stormy.played.items() if rollout.failed}
    assert failed and not stormy.full_at
    for rollout in failed.values():
        assert any(words in rollout.error for words in EXPECTED), rollout.error
        assert not any(row.agent_tokens for row in rollout.rows)
    for key in stormy.played.keys() - failed.keys():
        assert _outcome(stormy.played[key]) == _outcome(calm.played[key]), key
