"""A worker in an actor of a Ray cluster: it may run on another machine.

Actors are spread over the nodes, reserve the resources that the environment names, and end with
this process. If an actor or its node dies, another actor takes its place on a node that lives. An
environment is stored once in Ray's object store, so each node receives it once.
"""

import logging
import math
import os
import pickle
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from agentsgym.envs.extras import require
from agentsgym.rollout.workers import worker
from agentsgym.rollout.workers.channel import Deadline, TookTooLong
from agentsgym.rollout.workers.main import Server, packed_reply
from agentsgym.rollout.workers.worker import Worker, WorkerLost, WorkerSilent, unpacked
from agentsgym.types.errors import ConfigError

_NO_CLUSTER = "but this process has no Ray cluster"
_WHAT_TO_DO = (
    "Start one (`ray start --head`) and set RAY_ADDRESS to its HOST:PORT, or to auto for the one "
    "of this machine"
)
REACH_SECONDS = 10.0
"""Seconds in which the address of a cluster must accept a connection."""
_START_PAUSES = (1.0, 2.0, 4.0)
"""Seconds between the tries to start an actor that dies before it has its environment."""
_OWN_OPTIONS = ("num_cpus", "num_gpus", "memory")
_STORED: dict[tuple[str, int], Any] = {}
"""References to the stored environments, by Ray's job and by the environment's number."""


def connect(asked: str = "env_config.place is 'ray'") -> None:
    """Connect this process to the Ray cluster of RAY_ADDRESS, unless `ray.init` has connected it.
    `asked` says which setting asks for it.

    No cluster is started or looked for: a dataset row may ask for Ray, and only you say which
    machines play it.

    Raises ConfigError if there is none, MissingExtra if Ray is not installed.
    """
    ray = ray_package()
    if ray.is_initialized():
        return
    try:
        address = os.environ["RAY_ADDRESS"]
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except KeyError:
        raise ConfigError(
            f"{asked}, {_NO_CLUSTER}: RAY_ADDRESS is not set. {_WHAT_TO_DO}"
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{asked}, {_NO_CLUSTER}: {type(error).__name__} at {address}: {error}. {_WHAT_TO_DO}"
        ) from error


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT: `ray.init` would try it for five minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()


def actor_options(resources: Mapping[str, float]) -> dict[str, Any]:
    """Ray's options of an actor that reserves `resources` and may run on any node."""
    options: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
    options |= {n: resources[n] for n in _OWN_OPTIONS if n in resources}
    return options | {"resources": {n: v for n, v in resources.items() if n not in _OWN_OPTIONS}}


class _Actor:
    """The actor's object in the cluster."""

    def __init__(self) -> None:
        self._server = Server()

    def install(self, env_id: int, payload: bytes, path: list[str]) -> bytes:
        """Load an environment."""
        return packed_reply(self._server.answer(("install", env_id, payload, path)))

    def answer(self, request: bytes) -> bytes:
        """The packed reply to a packed request."""
        # The other end is the process that started this actor.
        return packed_reply(self._server.answer(pickle.loads(request)))  # noqa: S301


class NoRoom:
    """That no actor with certain resources could be started. The workers that need them share it,
    so that all their sessions together wait for a place once."""

    def __init__(self) -> None:
        self._text = ""
        self._until = -math.inf

    def note(self, text: str) -> None:
        """An actor could not be started in time; for as long again none will be tried."""
        self._text, self._until = text, time.monotonic() + worker.START_SECONDS

    def check(self) -> None:
        """Raise WorkerLost if an actor could not be started a short time ago."""
        if time.monotonic() < self._until:
            raise WorkerLost(self._text)


class RayWorker(Worker):
    """One actor, with `resources` reserved for it."""

    def __init__(self, resources: dict[str, float], context_overflow: NoRoom) -> None:
        super().__init__()
        self._resources = resources
        self._no_room = context_overflow
        self._actor: Any = None
        self._job = ""
        self._stops = 0

    def _running(self) -> bool:
        return self._actor is not None and self._job == _job()

    def _start(self) -> None:
        self._installed.clear()
        self._no_room.check()
        made = ray_package().remote(_Actor).options(**actor_options(self._resources))
        self._actor, self._job = made.remote(), _job()

    def _install(self, env_id: int, payload: bytes) -> tuple[str, Any]:
        path = [entry for entry in sys.path if entry]
        try:
            reply = self._installed_in_new(env_id, payload, path)
        except WorkerLost as error:
            text = (
                f"an actor that reserves {self._resources or {'num_cpus': 1}} could not be "
                f"started: {error}"
            )
            if isinstance(error, WorkerSilent):
                self._no_room.note(text)
            raise WorkerLost(text) from None
        return reply

    def _installed_in_new(self, env_id: int, payload: bytes, path: list[str]) -> tuple[str, Any]:
        """The reply to an installation. Where the actor dies meanwhile it is tried again: for some
        seconds Ray places new actors on a node that was lost."""
        arguments = (env_id, _stored(env_id, payload), path)
        stops = self._stops
        for pause in _START_PAUSES:
            try:
                return self._reply("install", arguments, worker.START_SECONDS)
            except WorkerSilent:
                raise
            except WorkerLost:
                time.sleep(pause)
                if self._stops != stops:
                    raise
                self._start()
        return self._reply("install", arguments, worker.START_SECONDS)

    def _exchange(self, message: tuple[Any, ...], timeout: float) -> tuple[str, Any]:
        return self._reply("answer", (pickle.dumps(message),), timeout)

    def _reply(self, method: str, arguments: tuple[Any, ...], timeout: float) -> tuple[str, Any]:
        ray = ray_package()
        try:
            reference = getattr(self._actor, method).remote(*arguments)
            deadline = Deadline(timeout)
            while not ray.wait([reference], timeout=deadline.next_wait())[0]:
                pass
            return unpacked(ray.get(reference))
        except TookTooLong:
            self._kill()
            raise WorkerSilent(f"the Ray actor gave no answer within {timeout:g} seconds") from None
        except ray.exceptions.RayError as error:
            self._kill()
            raise WorkerLost(f"the Ray actor died ({type(error).__name__})") from None
        except BaseException:
            self._kill()  # an abandoned request would still be played
            raise

    def stop(self) -> None:
        """End the actor, even if a thread waits for its answer, which then starts no other one."""
        self._stops += 1
        super().stop()

    def retire(self, env_id: int) -> None:
        """Let the cluster and the actor drop an environment. Safe in a finalizer."""
        for key in [key for key in _STORED if key[1] == env_id]:
            _STORED.pop(key, None)
        super().retire(env_id)

    def _interrupt(self) -> None:
        actor, ray = self._actor, ray_package()
        if actor is not None and self._running_cluster():
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)

    def _kill(self) -> None:
        self._interrupt()
        self._actor = None
        self._installed.clear()

    def _running_cluster(self) -> bool:
        return bool(ray_package().is_initialized()) and self._job == _job()


def ray_package() -> ModuleType:
    """The package. Raises MissingExtra."""
    return require("ray", "ray")


def _job() -> str:
    return str(ray_package().get_runtime_context().get_job_id())


def _stored(env_id: int, payload: bytes) -> Any:
    key = (_job(), env_id)
    if key not in _STORED:
        _STORED[key] = ray_package().put(payload)
    return _STORED[key]
