"""A grader in a separate process, which is replaced if it hangs or dies."""

import json
import logging
import os
import secrets
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

from agentsgym.child_process import bare_environment, start_python

START_SECONDS = 120.0
"""Seconds for a new process to import its modules; sympy takes seconds on a busy core."""
MAX_REPLY_BYTES = 2_000
KEPT_VERDICTS = 4_096
_PROGRAM = "agentsgym.envs.classical_reasoning.grader_process"

_log = logging.getLogger(__name__)


class GraderFailed(RuntimeError):
    """The grader's process could not be started."""


class ProcessGrader:
    """Sends requests to a child process. If a request takes longer than `timeout` seconds or kills
    the process, its result is False, and the next request starts a new process.

    The first request starts the process, which ends with this object or this process. Thread-safe:
    requests wait for each other.
    """

    def __init__(self, timeout: float, modules: Sequence[str]) -> None:
        self.timeout = timeout
        self.failures = 0
        self._modules = list(modules)
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._verdicts: dict[str, bool] = {}

    def ask(self, request: Mapping[str, Any]) -> bool:
        """Whether the answer is right.

        Raises GraderFailed if no process can be started, and ValueError if the request and its
        data set disagree about the question.
        """
        key = json.dumps(request)
        with self._lock:
            if key in self._verdicts:
                return self._verdicts[key]
            if self._child is None:
                self._child = _start(self._modules)
            reply = self._child.ask({**request, "seconds": self.timeout}, self.timeout + 1.0)
            if reply is None or not isinstance(reply.get("right"), bool):
                self.failures += 1
                self._child.kill()
                self._child = None
                return False
            if "error" not in reply and "late" not in reply:
                self._remember(key, reply["right"])
        if "error" in reply:
            raise ValueError(str(reply["error"]))
        return bool(reply["right"])

    def _remember(self, key: str, right: bool) -> None:
        """Keep the latest verdicts: the rollouts of a group often give the same answer."""
        self._verdicts[key] = right
        if len(self._verdicts) > KEPT_VERDICTS:
            del self._verdicts[next(iter(self._verdicts))]

    def close(self) -> None:
        """End the process if it runs."""
        with self._lock:
            if self._child is not None:
                self._child.kill()
                self._child = None


class _Child:
    """One process. It gets one request at a time; a reply must carry its request's number."""

    def __init__(self) -> None:
        self._process = start_python(
            _PROGRAM,
            env={**bare_environment(), "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        weakref.finalize(self, _end, self._process)

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any] | None:
        """The reply; None if the process died, did not answer in `timeout` seconds, or wrote
        anything but one reply to this request."""
        assert self._process.stdin is not None
        number = secrets.token_hex(16)
        line = json.dumps({**request, "id": number}) + "\n"
        try:
            if self._has_spoken():
                return None
            self._process.stdin.write(line.encode())
        except OSError:
            return None
        return self.reply(number, timeout)

    def reply(self, number: str, timeout: float) -> dict[str, Any] | None:
        """The process's reply to the request with that number."""
        line = self._line(time.monotonic() + timeout)
        try:
            said = json.loads(line) if line else None
        except ValueError:
            return None
        return said if isinstance(said, dict) and said.get("id") == number else None

    def _has_spoken(self) -> bool:
        """Whether the process wrote something without a request."""
        assert self._process.stdout is not None
        return bool(wait([self._process.stdout.fileno()], 0))

    def _line(self, deadline: float) -> bytes | None:
        assert self._process.stdout is not None
        pipe, said = self._process.stdout.fileno(), b""
        while not said.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not wait([pipe], left):
                return None
            part = os.read(pipe, MAX_REPLY_BYTES)
            said += part
            if not part or len(said) > MAX_REPLY_BYTES or b"\n" in said[:-1]:
                return None
        return said

    def kill(self) -> None:
        _end(self._process)


_TOLD: set[str] = set()


def _start(modules: list[str]) -> _Child:
    child = _Child()
    ready = child.reply("ready", START_SECONDS)
    if ready is None:
        child.kill()
        raise GraderFailed("the grader's process did not start")
    _tell(ready["missing"])
    if not (child.ask({"kind": "warm", "modules": modules}, START_SECONDS) or {}).get("right"):
        child.kill()
        raise GraderFailed(f"the grader's process could not import {', '.join(modules)}")
    return child


def _tell(missing: list[str]) -> None:
    """Log once per process which protection this machine does not support."""
    new = [what for what in missing if what not in _TOLD]
    _TOLD.update(new)
    if new:
        _log.warning(
            "answers are graded in a process with less protection than on other machines: %s",
            ", ".join(new),
        )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                continue
