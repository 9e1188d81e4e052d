"""Ctrl-C and kill -9: nothing of ours waits for what hangs, and nothing outlives its process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_program import assert_gone

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.clock,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


@pytest.fixture
def hanging(tmp_path):
    """Starts hanging.py; (the process, the id of the process in which the sessions hang)."""
    started = []

    def start(workers, how):
        path = os.pathsep.join([str(HERE), str(HERE.parent), *filter(None, sys.path)])
        errors = (tmp_path / f"errors-{len(started)}").open("w+")
        process = subprocess.Popen(
            [sys.executable, str(HERE / "hanging.py"), str(workers), how],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": path},
        )
        started.append((process, errors))
        return process, _wait_for_pid(process, Path(errors.name))

    yield start
    for process, errors in started:
        process.kill()
        process.wait()
        errors.close()


def _wait_for_pid(process, errors):
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        for line in errors.read_text().splitlines():
            if line.startswith("hanging "):
                return int(line.split()[1])
        time.sleep(0.05)
    raise AssertionError(f"it does not hang: {errors.read_text()}")


@pytest.mark.parametrize(("workers", "how"), [(1, "busy"), (0, "sleep")], ids=str)
def test_ctrl_c_twice_ends_within_five_seconds_whatever_hangs(hanging, workers, how):
    process, pid = hanging(workers, how)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None  # the first one asks for a stop
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.wait(timeout=20)
    assert time.monotonic() - began < 5
    assert_gone([pid], 2.0)


def test_a_worker_ends_within_two_seconds_of_its_killed_process(hanging):
    process, pid = hanging(1, "busy")
    time.sleep(0.1)
    process.kill()
    process.wait()
    assert_gone([pid], 2.0)
