"""A worker: it has environments and the states of their sessions, wherever it runs.

A worker answers one request at a time. If it dies or does not answer in time, it is ended and the
next request starts it again. It then has no data, and each of its sessions is replayed
(`workers.env`).
"""

import itertools
import pickle
import threading
import traceback
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

START_SECONDS = 300.0
"""Seconds for a worker to start and to load an environment: imports are slow if many workers start
at once."""
STOP_SECONDS = 1.0


class WorkerLost(RuntimeError):
    """A worker died or hung during a request."""


class WorkerSilent(WorkerLost):
    """A worker did not answer in time."""


class Worker(ABC):
    """One worker. Requests of several threads wait for each other.

    A subclass says where it runs: `_start`, `_running`, `_install`, `_exchange`, `_kill` and
    `_interrupt`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._installed: set[int] = set()
        self._ended: deque[int] = deque()
        self._retired: deque[int] = deque()
        self._forgotten = 0
        self.begun = 0

    @abstractmethod
    def _running(self) -> bool:
        """Whether it was started and not ended."""

    @abstractmethod
    def _start(self) -> None:
        """Start it, without an environment."""

    @abstractmethod
    def _install(self, env_id: int, payload: bytes) -> tuple[str, Any]:
        """Load an environment; returns its reply. Raises WorkerLost."""

    @abstractmethod
    def _exchange(self, message: tuple[Any, ...], timeout: float) -> tuple[str, Any]:
        """The reply to a message. Raises WorkerLost after ending it."""

    @abstractmethod
    def _kill(self) -> None:
        """End it and forget what it had, if it runs."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End it although another thread may wait for its answer."""

    def request(
        self, env_id: int, payload: bytes, message: tuple[Any, ...], timeout: float
    ) -> tuple[str, Any]:
        """Send a message about an environment, which is installed first if necessary.

        Raises WorkerLost if there is no reply within `timeout` seconds or if the worker dies. The
        time to start and to install the environment does not count.
        """
        with self._lock:
            if not self._running():
                self._start()
            if env_id not in self._installed:
                kind, value = self._install(env_id, payload)
                if kind != "ok":
                    return kind, value
                self._installed.add(env_id)
            self._discard(timeout)
            return self._exchange(message, timeout)

    def has(self, env_id: int) -> bool:
        """Whether the worker runs and has this environment."""
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
        """End the worker, even if a thread waits for its answer."""
        self._interrupt()
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


def unpacked(reply: bytes) -> tuple[str, Any]:
    """A reply that cannot be read only fails its session: the way to the worker itself works."""
    try:
        kind, value = pickle.loads(reply)  # noqa: S301 - a worker runs the user's own code
    except Exception:
        return "error", f"the worker's answer cannot be read:\n{traceback.format_exc()}"
    return kind, value
