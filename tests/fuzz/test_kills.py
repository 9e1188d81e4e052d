"""Trainings that are killed, and go on; FUZZ_KILLS is their number.

A run of the command line, whose environments live in worker processes and whose actions an HTTP
server samples, is killed by SIGKILL at random moments and resumed. It must end with the metrics,
rollouts, summary and weights of a run that nobody disturbed, and leave no process behind. Of a
run of two processes either is killed, and the other must end by itself.
"""

import copy
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

import helpers
from agentsgym.generation.embedded.engine import EmbeddedEngine
from completions_server import CompletionsServer
from fuzz.parts import chat_tokenizer, tiny_model

TIMES = {"seconds", "tokens_per_second", "eval_runtime"}
ORPHAN_SECONDS = 4.0
_STEP_SECONDS = 2.0  # more than a step takes, so that a kill may come in the next ones
RUN = """\
env: digit.DigitEnv
env_config: {{workers: 2}}
model: model
threads: 1
train:
  max_steps: {steps}
  per_device_train_batch_size: {batch}
  num_generations: 8
  max_action_tokens: 6
  learning_rate: 1e-2
  save_steps: 3
  use_cpu: true
engine: {{urls: ["{url}"]}}
eval: {{rollouts: 16}}
"""
MARK = "AGENTSGYM_FUZZ_KILL"
KILLS = int(os.environ.get("FUZZ_KILLS", "2"))
STEPS = 6


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_training_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, processes: int
) -> None:
    tiny_model().save_pretrained(tmp_path / "model")
    chat_tokenizer().save_pretrained(tmp_path / "model")
    shutil.copy(helpers.__file__, tmp_path / "digit.py")
    rng = random.Random(0)
    engine = EmbeddedEngine(copy.deepcopy(tiny_model()), chat_tokenizer(), capacity=1)
    with closing(CompletionsServer(engine, follow=True)) as server:
        (tmp_path / "run.yaml").write_text(_run(server.url, processes))
        together = ("--processes", str(processes))
        train(tmp_path, "whole", *together).communicate()
        whole = results_of(tmp_path / "whole")
        assert whole
        killed = 0
        for number in range(KILLS):
            name = f"killed-{number}"
            process = train(tmp_path, name, *together)
            rank = rng.randrange(processes)
            killed += _kill_at(process, tmp_path / name, rng.uniform(0, STEPS), rank)
            assert _left_behind(name) == 0
            again = ("--resume", "--restart")
            output = train(tmp_path, name, *again, *together).communicate()[0]
            resumed = results_of(tmp_path / name)
            assert resumed.keys() == whole.keys(), output[-2000:]
            for what, value in whole.items():
                assert resumed[what] == value, what
            shutil.rmtree(tmp_path / name)
        assert killed > KILLS / 2


def _run(url: str, processes: int) -> str:
    return RUN.format(url=url, steps=STEPS, batch=16 // processes)


def train(home: Path, name: str, *more: str) -> "subprocess.Popen[str]":
    """Start the command line; what it starts is known by its environment."""
    words = ["run.yaml", "--output", name, *more]
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", MARK: name}
    return subprocess.Popen(
        [sys.executable, "-m", "agentsgym", "train", *words],
        cwd=home,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _kill_at(process: "subprocess.Popen[str]", run: Path, moment: float, rank: int) -> bool:
    """Kill one process of the run a fraction of a second after its step number `moment`, and wait
    for the others; False where it was over by then."""
    while _steps_of(run) < int(moment):
        if process.poll() is not None:
            process.communicate()
            return False
        time.sleep(0.01)
    time.sleep(moment % 1 * _STEP_SECONDS)
    killed = process.poll() is None
    ranks = [p for p in psutil.Process(process.pid).children() if _rank_of(p) == rank]
    for victim in ranks or [process]:
        victim.kill()
    process.communicate(timeout=60)
    return killed


def _rank_of(process: psutil.Process) -> int | None:
    try:
        name = process.environ().get("RANK")
    except (psutil.Error, OSError):
        return None
    return None if name is None else int(name)


def _left_behind(name: str) -> int:
    """How many processes of that run still live some seconds after it died."""
    end = time.monotonic() + ORPHAN_SECONDS
    while (left := sum(_belongs(p, name) for p in psutil.process_iter())) and (
        time.monotonic() < end
    ):
        time.sleep(0.2)
    return left


def _belongs(process: psutil.Process, name: str) -> bool:
    try:
        return process.environ().get(MARK) == name and process.status() != "zombie"
    except (psutil.Error, OSError):
        return False


def _steps_of(run: Path) -> int:
    try:
        return len((run / "metrics.jsonl").read_text().splitlines())
    except OSError:
        return 0


def results_of(run: Path) -> dict[str, Any]:
    """All that a run says but for times: metrics, rollouts, summary, weights."""
    from safetensors.numpy import load_file

    from agentsgym.runs.files import RunDirectory, read_metrics, read_stored, read_summary

    directory = RunDirectory(run)
    if not directory.summary.is_file() or not directory.model.is_dir():
        return {}
    summary = read_summary(directory.summary)
    metrics = [
        {key: line[key] for key in line if key not in TIMES and not key.startswith("time/")}
        for line in read_metrics(directory.metrics)
    ]
    return {
        "metrics": metrics,
        "rollouts": list(read_stored(run)),
        "summary": [summary.status, summary.steps, summary.before, summary.after],
        "agent tokens": summary.agent_tokens,
        "weights": [
            (name, value.tolist())
            for name, value in sorted(load_file(directory.model / "model.safetensors").items())
        ],
    }
