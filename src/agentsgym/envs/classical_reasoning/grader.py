"""A grader in a process of its own, which is replaced when it hangs or dies."""

import json
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

START_SECONDS = 120.0
"""How long a new process may take to import what it needs; sympy takes seconds on a busy core."""


class GraderFailed(RuntimeError):
    """The grader's process could not be started."""


class ProcessGrader:
    """Asks a child process. A request that takes longer than `timeout` seconds, or that kills the
    process, is answered with False, and the next request finds a new process.

    The process is started by the first request and ends with this object or the interpreter.
    Thread-safe: requests wait for each other.
    """

    def __init__(self, timeout: float, modules: Sequence[str]) -> None:
        self.timeout = timeout
        self.failures = 0
        self._modules = list(modules)
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def ask(self, request: Mapping[str, Any]) -> bool:
        """Whether the answer is right. Raises GraderFailed where no process can be started."""
        with self._lock:
            if self._child is None:
                self._child = _start(self._modules)
            reply = self._child.ask(request, self.timeout)
            if reply is None:
                self.failures += 1
                self._child.kill()
                self._child = None
                return False
            return bool(reply["right"])

    def close(self) -> None:
        """End the process, if one runs."""
        with self._lock:
            if self._child is not None:
                self._child.kill()
                self._child = None


class _Child:
    """One process and the thread that reads what it says."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "agentsgym.envs.classical_reasoning.grader_process"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._replies: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process, self._replies), daemon=True).start()
        weakref.finalize(self, _end, self._process)

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any] | None:
        """The reply, None where the process died or did not answer in `timeout` seconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, OSError):
            return None
        return self.reply(timeout)

    def reply(self, timeout: float) -> dict[str, Any] | None:
        """The next thing that the process says."""
        try:
            line = self._replies.get(timeout=timeout)
        except queue.Empty:
            return None
        answer: dict[str, Any] | None = None if line is None else json.loads(line)
        return answer

    def kill(self) -> None:
        _end(self._process)


def _start(modules: list[str]) -> _Child:
    child = _Child()
    if child.reply(START_SECONDS) is None:
        child.kill()
        raise GraderFailed("the grader's process did not start")
    if not (child.ask({"kind": "warm", "modules": modules}, START_SECONDS) or {}).get("right"):
        child.kill()
        raise GraderFailed(f"the grader's process could not import {', '.join(modules)}")
    return child


def _read(process: "subprocess.Popen[str]", replies: "queue.SimpleQueue[str | None]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        replies.put(line)
    replies.put(None)


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                continue
