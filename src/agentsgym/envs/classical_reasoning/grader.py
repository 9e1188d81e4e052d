"""A grader in a process of its own, which is replaced when it hangs or dies."""

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

from agentsgym.envs.python_process import bare_environment, start_python

START_SECONDS = 120.0
"""How long a new process may take to import what it needs; sympy takes seconds on a busy core."""
MAX_REPLY_BYTES = 2_000
KEPT_VERDICTS = 4_096
_PROGRAM = "agentsgym.envs.classical_reasoning.grader_process"

_log = logging.getLogger(__name__)


class GraderFailed(RuntimeError):
    """The grader's process could not be started."""


class ProcessGrader:
    """Asks a child process. A request that takes longer than `timeout` seconds, or that kills the
    process, is answered with False, and the next request finds a new process.

    The process is started by the first request and ends with this object or this process.
    Thread-safe: requests wait for each other.
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

        Raises GraderFailed where no process can be started, ValueError where the request does not
        name the question that it asks about.
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
        """Keep the last verdicts: the rollouts of a group often give the same answer."""
        self._verdicts[key] = right
        if len(self._verdicts) > KEPT_VERDICTS:
            del self._verdicts[next(iter(self._verdicts))]

    def close(self) -> None:
        """End the process, if one runs."""
        with self._lock:
            if self._child is not None:
                self._child.kill()
                self._child = None


class _Child:
    """One process. It is asked one thing at a time, and a reply must carry its request's number."""

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
        """The reply, None where the process died, did not answer in `timeout` seconds, or said
        anything else than one reply to this request."""
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
        """What the process says to the request of that number."""
        line = self._line(time.monotonic() + timeout)
        try:
            said = json.loads(line) if line else None
        except ValueError:
            return None
        return said if isinstance(said, dict) and said.get("id") == number else None

    def _has_spoken(self) -> bool:
        """Whether the process said something that nobody asked for."""
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
    """Say once in this process which protection the machine does not offer."""
    new = [what for what in missing if what not in _TOLD]
    _TOLD.update(new)
    if new:
        _log.warning(
            "answers are graded in a process with less protection than elsewhere: %s",
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
