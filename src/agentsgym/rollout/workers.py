"""Worker processes, shared by all environments of this process.

A worker answers one request at a time. One that dies, or does not answer in time, is killed and
started again by the next request; it then knows nothing, and who has a session there finds out
(`remote` replays it).
"""

import atexit
import contextlib
import os
import socket
import subprocess
import threading
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

from agentsgym.envs.python_process import python_command, python_environment


class WorkerLost(RuntimeError):
    """A worker died or hung while it worked on a request."""


class Worker:
    """One worker process. Requests of several threads wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._installed: set[int] = set()
        self._ended: deque[int] = deque()
        self._retired: deque[int] = deque()
        self._forgotten = 0
        self.begun = 0

    @property
    def pid(self) -> int | None:
        """The process's id; None while there is none."""
        return self._process.pid if self._process else None

    def request(
        self, env_id: int, payload: bytes, message: tuple[Any, ...], timeout: float
    ) -> tuple[str, Any]:
        """Send a message that concerns an environment, which is installed first where it is not.

        Raises WorkerLost where no reply comes within `timeout` seconds or the process dies.
        """
        with self._lock:
            if self._process is None:
                self._start()
            if env_id not in self._installed:
                kind, value = self._exchange(("install", env_id, payload), timeout)
                if kind != "ok":
                    return kind, value
                self._installed.add(env_id)
            self._discard(timeout)
            return self._exchange(message, timeout)

    def end_session(self, lease: int) -> None:
        """Let the worker forget a session, with its next request. Safe in a finalizer."""
        self._ended.append(lease)

    def retire(self, env_id: int) -> None:
        """Let the worker forget an environment, with its next request. Safe in a finalizer."""
        self._retired.append(env_id)

    def open_sessions(self) -> int:
        """Number of sessions that began here and have not ended."""
        return self.begun - self._forgotten - len(self._ended)

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            self._kill()

    def _discard(self, timeout: float) -> None:
        leases = [self._ended.popleft() for _ in range(len(self._ended))]
        retired = {self._retired.popleft() for _ in range(len(self._retired))}
        self._forgotten += len(leases)
        self._installed -= retired
        if leases or retired:
            self._exchange(("discard", sorted(retired), leases), timeout)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                python_command("agentsgym.rollout.worker_main", str(theirs.fileno())),
                env=python_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
            )
        self._connection = Connection(ours.detach())

    def _exchange(self, message: tuple[Any, ...], timeout: float) -> tuple[str, Any]:
        assert self._connection is not None
        assert self._process is not None
        try:
            self._connection.send(message)
            if self._connection.poll(timeout):
                reply: tuple[str, Any] = self._connection.recv()
                return reply
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            code = self._process.returncode
            self._kill()
            raise WorkerLost(f"the worker process died (exit status {code})") from None
        except BaseException:
            self._kill()  # an answer on its way would be taken for the next request's
            raise
        self._kill()
        raise WorkerLost(f"the worker process gave no answer within {timeout:g} seconds")

    def _kill(self) -> None:
        if self._process is None or self._connection is None:
            return
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._process = self._connection = None
        self._installed.clear()


_WORKERS: list[Worker] = []
_LOCK = threading.Lock()
_OWNER = os.getpid()


def workers(count: int) -> list[Worker]:
    """The first `count` workers of this process; their processes start when they are needed."""
    global _OWNER
    with _LOCK:
        if os.getpid() != _OWNER:  # a fork must not talk into its parent's sockets
            _OWNER = os.getpid()
            _WORKERS.clear()
        while len(_WORKERS) < count:
            _WORKERS.append(Worker())
        return _WORKERS[:count]


def started_workers() -> list[Worker]:
    """All workers that this process asked for so far."""
    return workers(len(_WORKERS))


def least_busy(count: int) -> Worker:
    """The one of the first `count` workers with the fewest open sessions, for one more."""
    among = workers(count)
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
