"""Worker processes, shared by all environments of this process.

A worker answers one request at a time. If it dies or does not answer in time, it is killed and the
next request starts it again. It then has no data, and each of its sessions is replayed
(`workers.env`). Workers end when this process ends, in whatever way.

Both sides unpickle the other side's messages: a worker runs the environment's code, which is
trusted; a worker is not a sandbox. Untrusted data, a task, is sent as plain data.
"""

import atexit
import contextlib
import itertools
import os
import pickle
import socket
import subprocess
import sys
import threading
import traceback
from collections import deque
from typing import Any

from agentsgym.envs.python_process import python_environment, start_python
from agentsgym.rollout.workers.channel import Channel, Deadline, TookTooLong

START_SECONDS = 300.0
"""Seconds for a worker to start and to load an environment: imports are slow if many workers start
at once."""
STOP_SECONDS = 1.0
MOST_PROCESSES = max(64, 4 * (os.cpu_count() or 1))
"""Limit for this process. A row may request more; the results do not depend on the number."""


class WorkerLost(RuntimeError):
    """A worker died or hung during a request."""


class Worker:
    """One worker process. Requests of several threads wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._numbers = itertools.count(1)
        self._installed: set[int] = set()
        self._ended: deque[int] = deque()
        self._retired: deque[int] = deque()
        self._forgotten = 0
        self.begun = 0

    @property
    def pid(self) -> int | None:
        """The process's id; None if there is none."""
        return self._process.pid if self._process else None

    def request(
        self, env_id: int, payload: bytes, message: tuple[Any, ...], timeout: float
    ) -> tuple[str, Any]:
        """Send a message about an environment, which is installed first if necessary.

        Raises WorkerLost if there is no reply within `timeout` seconds or if the process dies. The
        time to start and to install the environment does not count.
        """
        with self._lock:
            if self._process is None:
                self._start()
            if env_id not in self._installed:
                kind, value = self._install(env_id, payload)
                if kind != "ok":
                    return kind, value
                self._installed.add(env_id)
            self._discard(timeout)
            return self._exchange(message, timeout)

    def has(self, env_id: int) -> bool:
        """Whether the process runs and has this environment."""
        return env_id in self._installed

    def end_session(self, lease: int) -> None:
        """Let the worker drop a session, with its next request. Safe in a finalizer."""
        self._ended.append(lease)

    def retire(self, env_id: int) -> None:
        """Let the worker drop an environment, with its next request. Safe in a finalizer."""
        self._retired.append(env_id)

    def open_sessions(self) -> int:
        """Number of sessions that began here and have not ended."""
        return self.begun - self._forgotten - len(self._ended)

    def stop(self) -> None:
        """End the process, even if a thread waits for its answer."""
        process = self._process
        if process is not None:
            process.kill()
        if self._lock.acquire(timeout=STOP_SECONDS):
            try:
                self._kill()
            finally:
                self._lock.release()

    def _discard(self, timeout: float) -> None:
        leases = [self._ended.popleft() for _ in range(len(self._ended))]
        retired = {self._retired.popleft() for _ in range(len(self._retired))}
        self._forgotten += len(leases)
        self._installed -= retired
        if leases or retired:
            self._exchange(("discard", sorted(retired), leases), timeout)

    def _install(self, env_id: int, payload: bytes) -> tuple[str, Any]:
        try:
            # This process may have more import paths now than when the worker was started.
            path = [entry for entry in sys.path if entry]
            return self._exchange(("install", env_id, payload, path), START_SECONDS)
        except WorkerLost as error:
            raise WorkerLost(f"a worker process could not be started: {error}") from None

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start_python(
                "agentsgym.rollout.workers.main",
                str(theirs.fileno()),
                env=python_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                process_group=0,  # Ctrl-C at the terminal must only reach this process
            )
        self._channel = Channel(ours)

    def _exchange(self, message: tuple[Any, ...], timeout: float) -> tuple[str, Any]:
        number = next(self._numbers)
        try:
            answered, reply = self._sent(number, pickle.dumps(message), Deadline(timeout))
        except TookTooLong:
            self._kill()
            raise WorkerLost(
                f"the worker process gave no answer within {timeout:g} seconds"
            ) from None
        except (EOFError, OSError) as error:
            raise WorkerLost(self._end(error)) from None
        except BaseException:
            self._kill()  # its late answer would be taken for the answer to the next request
            raise
        if answered != number:
            self._kill()
            raise WorkerLost("the worker process answered something that was not requested")
        return _unpacked(reply)

    def _sent(self, number: int, message: bytes, deadline: Deadline) -> tuple[int, bytes]:
        assert self._channel is not None
        self._channel.send(number, message, deadline)
        return self._channel.receive(deadline)

    def _end(self, error: Exception) -> str:
        """How the process ended, or what it sent instead of an answer."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        self._kill()
        if code is None:
            return f"the worker process gave no proper answer ({error!r})"
        return f"the worker process died (exit status {code})"

    def _kill(self) -> None:
        if self._process is None or self._channel is None:
            return
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._process = self._channel = None
        self._installed.clear()


def _unpacked(reply: bytes) -> tuple[str, Any]:
    """A reply that cannot be read only fails its session: the channel itself works."""
    try:
        kind, value = pickle.loads(reply)  # noqa: S301 - a worker runs the user's own code
    except Exception:
        return "error", f"the worker's answer cannot be read:\n{traceback.format_exc()}"
    return kind, value


_WORKERS: list[Worker] = []
_LOCK = threading.Lock()
_OWNER = os.getpid()


def workers(count: int) -> list[Worker]:
    """The first `count` workers of this process; a process starts when it is needed."""
    global _OWNER
    with _LOCK:
        if os.getpid() != _OWNER:  # a fork must not use its parent's sockets
            _OWNER = os.getpid()
            _WORKERS.clear()
        while len(_WORKERS) < count:
            _WORKERS.append(Worker())
        return _WORKERS[:count]


def started_workers() -> list[Worker]:
    """All workers that this process has requested so far."""
    return workers(len(_WORKERS))


def least_busy(count: int) -> Worker:
    """The worker with the fewest open sessions among the first `count`."""
    among = workers(min(count, MOST_PROCESSES))
    with _LOCK:
        chosen = min(among, key=Worker.open_sessions)
        chosen.begun += 1
    return chosen


def stop_workers() -> None:
    """End all worker processes. They start again when they are needed."""
    if os.getpid() == _OWNER:
        for worker in _WORKERS:
            worker.stop()


atexit.register(stop_workers)
