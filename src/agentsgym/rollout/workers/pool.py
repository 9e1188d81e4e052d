"""The workers of this process, shared by all its environments: pools of processes of this machine
and of actors of a Ray cluster."""

import atexit
import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from agentsgym.envs.settings import EnvSettings
from agentsgym.rollout.workers.process import ProcessWorker
from agentsgym.rollout.workers.worker import Worker

MOST_PROCESSES = max(64, 4 * (os.cpu_count() or 1))
"""Limit for this process. A row may request more; the results do not depend on the number."""


class Pool:
    """Workers of one kind, which `make` makes; a worker starts with its first request."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._workers: list[Worker] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def workers(self, count: int) -> list[Worker]:
        """The first `count` workers."""
        with self._lock:
            if os.getpid() != self._owner:  # a fork must not use its parent's connections
                self._owner = os.getpid()
                self._workers.clear()
            while len(self._workers) < count:
                self._workers.append(self._make())
            return self._workers[:count]

    def requested(self) -> list[Worker]:
        """All workers that this process has requested so far."""
        return self.workers(len(self._workers))

    def least_busy(self, count: int) -> Worker:
        """The worker with the fewest open sessions among the first `count`."""
        among = self.workers(count)
        with self._lock:
            chosen = min(among, key=Worker.open_sessions)
            chosen.begun += 1
        return chosen

    def stop(self) -> None:
        """End all workers. They start again when they are needed."""
        if os.getpid() == self._owner:
            for worker in self._workers:
                worker.stop()


_PROCESSES = Pool(ProcessWorker)
_ACTORS: dict[str, Pool] = {}
"""By the resources that each actor reserves, as JSON."""


def worker_for(config: EnvSettings) -> Worker:
    """The worker that begins the next session of an environment with this configuration."""
    if config.place == "ray":
        return _actors(config.worker_resources or {}).least_busy(config.workers)
    return least_busy(config.workers)


def check_place(config: EnvSettings) -> None:
    """Connect to the Ray cluster if the configuration needs one.

    Raises ConfigError if there is none, MissingExtra if Ray is not installed.
    """
    if config.place == "ray":
        from agentsgym.rollout.workers.ray_actor import connect

        connect()


def _actors(resources: Mapping[str, Any]) -> Pool:
    from agentsgym.rollout.workers.ray_actor import NoRoom, RayWorker

    key = json.dumps(resources, sort_keys=True)
    if key not in _ACTORS:
        context_overflow = NoRoom()
        _ACTORS[key] = Pool(lambda: RayWorker(json.loads(key), context_overflow))
    return _ACTORS[key]


def workers(count: int) -> list[ProcessWorker]:
    """The first `count` worker processes of this process; a process starts when it is needed."""
    return cast("list[ProcessWorker]", _PROCESSES.workers(count))


def least_busy(count: int) -> Worker:
    """The worker process with the fewest open sessions among the first `count`."""
    return _PROCESSES.least_busy(min(count, MOST_PROCESSES))


def started_workers() -> list[Worker]:
    """All workers, of every kind, that this process has requested so far."""
    pools = (_PROCESSES, *_ACTORS.values())
    return [worker for pool in pools for worker in pool.requested()]


def stop_workers() -> None:
    """End all workers. They start again when they are needed."""
    for pool in (_PROCESSES, *_ACTORS.values()):
        pool.stop()


atexit.register(stop_workers)
