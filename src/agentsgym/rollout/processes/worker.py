"""Worker processes of this machine, shared by all environments of this process.

A worker answers one request at a time. If it dies or does not answer in time, it is ended and the
next request starts it again. It then has no data, and each of its sessions is replayed
(`processes.env`). Both sides unpickle the other side's messages: a worker runs the environment's
code, which is trusted; a worker is not a sandbox. Untrusted data, a task, is sent as plain data.
"""

import atexit
import contextlib
import os
import pickle
import subprocess
import threading
from collections import deque
from multiprocessing.connection import Connection, Pipe
from typing import Any

from agentsgym.child_process import python_environment, start_python

MOST_WORKERS = max(64, 4 * (os.cpu_count() or 1))
"""Limit for this process. A row may request more; the results do not depend on the number."""
START_SECONDS = 300.0
"""Seconds for a worker to start and to load an environment: imports are slow if many workers start
at once."""
_STOP_SECONDS = 1.0


class WorkerError(RuntimeError):
    """An error in a worker; the message has the worker's traceback or how the worker ended."""


class WorkerLost(RuntimeError):
    """A worker died or hung during a request."""


class Worker:
    """One worker process, which ends when this process ends, in whatever way. Who sends several
    requests that belong together holds `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.environments: set[str] = set()
        """Keys of the environments that the process has."""
        self.sessions: set[int] = set()
        """Numbers of the sessions that the process has."""
        self.load = 0
        """Number of sessions that began here and have not ended."""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._ended: deque[int] = deque()

    @property
    def pid(self) -> int | None:
        """The process's id; None if there is none."""
        return self._process.pid if self._process else None

    def request(self, timeout: float, *request: Any) -> Any:
        """The answer to a request (`processes.serve`). Raises WorkerLost if there is none within
        `timeout` seconds or if the worker dies, and WorkerError with the worker's own error."""
        with self.lock:
            if self._process is None:
                self._start()
            ended = [self._ended.popleft() for _ in range(len(self._ended))]
            return self._exchange(pickle.dumps((ended, request)), timeout)

    def end_session(self, number: int) -> None:
        """Let the worker drop a session, with its next request."""
        self.load -= 1
        self.sessions.discard(number)
        self._ended.append(number)

    def stop(self) -> None:
        """End the worker, even if a thread waits for its answer."""
        process = self._process
        if process is not None:
            process.kill()
        if self.lock.acquire(timeout=_STOP_SECONDS):
            try:
                self._kill()
            finally:
                self.lock.release()

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = start_python(
                "agentsgym.rollout.processes.serve",
                str(theirs.fileno()),
                env=python_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                process_group=0,  # Ctrl-C at the terminal must only reach this process
            )

    def _exchange(self, message: bytes, timeout: float) -> Any:
        """Send a message and receive the answer."""
        assert self._connection is not None
        try:
            self._connection.send_bytes(message)
            if not self._connection.poll(timeout):
                raise TimeoutError
            reply = self._connection.recv_bytes()
        except TimeoutError:
            self._kill()
            raise WorkerLost(
                f"the worker process gave no answer within {timeout:g} seconds"
            ) from None
        except (EOFError, OSError):
            raise WorkerLost(self._end()) from None
        except BaseException:
            self._kill()  # its late answer would be taken for the answer to the next request
            raise
        kind, value = pickle.loads(reply)  # noqa: S301 - a worker runs the user's own code
        if kind == "error":
            raise WorkerError(f"in a worker process:\n{value}")
        return value

    def _end(self) -> str:
        """How the process ended."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        self._kill()
        return f"the worker process died (exit status {code})"

    def _kill(self) -> None:
        self.environments.clear()
        self.sessions.clear()
        if self._process is None or self._connection is None:
            return
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._process = self._connection = None


_WORKERS: list[Worker] = []
_LOCK = threading.Lock()


def workers(count: int) -> list[Worker]:
    """The first `count` workers of this process; one starts with its first request."""
    with _LOCK:
        while len(_WORKERS) < count:
            _WORKERS.append(Worker())
        return _WORKERS[:count]


def least_busy(count: int) -> Worker:
    """The worker with the fewest sessions among the first `count`, which begins another one."""
    among = workers(min(count, MOST_WORKERS))
    with _LOCK:
        chosen = min(among, key=lambda worker: worker.load)
        chosen.load += 1
    return chosen


def stop_workers() -> None:
    """End all workers. They start again when they are needed."""
    for worker in list(_WORKERS):
        worker.stop()


atexit.register(stop_workers)
if hasattr(os, "register_at_fork"):  # a fork must not use its parent's connections
    os.register_at_fork(after_in_child=_WORKERS.clear)
