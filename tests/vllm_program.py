"""A fake `vllm` program for tests, and the processes that it has started."""

import shlex
import sys
import time
from pathlib import Path

from helpers import wait_until

TESTS = Path(__file__).parent


def write_program(folder):
    """Write a program that behaves as fake_vllm.py says; it wants FAKE_VLLM_PIDS in its
    environment. Returns its path."""
    program = folder / "vllm"
    modules = f"{TESTS}:{TESTS.parent / 'src'}"
    command = f"PYTHONPATH={modules} exec {shlex.quote(sys.executable)}"
    program.write_text(f'#!/bin/sh\n{command} {TESTS / "fake_vllm.py"} "$@"\n')
    program.chmod(0o755)
    return str(program)


def pids(folder, lines=1):
    """The processes that the program has started, once it has written `lines` lines."""
    file = folder / "pids"
    wait_until(lambda: file.exists() and len(file.read_text().splitlines()) >= lines)
    return [int(pid) for pid in file.read_text().split()]


def alive(pid):
    """Whether a process runs; one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_gone(numbers, seconds=20):
    end = time.monotonic() + seconds
    while any(map(alive, numbers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, numbers))
