"""One writer per run directory."""

import os
import signal
import subprocess
import sys

import pytest

from agentsgym.runs.files.directory import RunInUse, claim, lock_directory

HOLD = """
import sys
from pathlib import Path
from agentsgym.runs.files.directory import lock_directory
lock = lock_directory(Path(sys.argv[1]))
print("held", flush=True)
{then}
sys.stdin.read()
"""


@pytest.fixture
def hold(tmp_path):
    """Another process that holds the lock of a directory until it is killed."""
    processes = []

    def start(directory, then=""):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(then=then), str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_second_writer_is_told_who_the_first_one_is(tmp_path, hold):
    first = hold(tmp_path / "run")
    with pytest.raises(RunInUse, match=f"is being written by process {first.pid} on .* since 20"):
        lock_directory(tmp_path / "run")
    lock_directory(tmp_path / "other").release()


def test_a_killed_writer_leaves_no_lock(tmp_path, hold):
    first = hold(tmp_path / "run")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    lock_directory(tmp_path / "run").release()


def test_a_run_that_is_being_written_is_not_moved_aside(tmp_path, hold):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("env: E")
    first = hold(run)
    with pytest.raises(RunInUse):
        claim(run, resume=False, set_aside=True, note=print)
    assert os.listdir(tmp_path) == ["run"]
    first.kill()
    first.wait()
    notes = []
    lock = claim(run, resume=False, set_aside=True, note=notes.append)
    assert notes == [f"The earlier run is now {run}.1."]
    assert (tmp_path / "run.1" / "config.yaml").is_file() and not (run / "config.yaml").exists()
    with pytest.raises(RunInUse, match=f"process {os.getpid()}"):  # the lock is the new one's
        lock_directory(run)
    lock_directory(tmp_path / "run.1").release()
    lock.release()
    lock_directory(run).release()
