"""A rollout worker in a Ray actor, and the learner's handle of it.

An actor answers every call with ("ok", value) or ("error", text): an exception that left it would
be written to Ray's logs. Calls are carried out in their order, but for `poll`, which waits in a
thread of its own.
"""

import importlib.metadata
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.rollout.failures import describe
from agentsgym.rollout.workers.ray_actor import actor_options, ray_package

_POLLS = "polls"


class PlayerActor:
    """The actor's object in the cluster."""

    def __init__(self) -> None:
        self._player: Any = None

    def start(self, path: list[str], version: str, setup: bytes, served: Any) -> tuple[str, Any]:
        """Make the player; returns the node's name."""
        return _answer(self._start, path, version, setup, served)

    def call(self, method: str, *arguments: Any) -> tuple[str, Any]:
        """Call a method of the player."""
        return _answer(lambda: getattr(self._player, method)(*arguments))

    def _start(self, path: list[str], version: str, setup: bytes, served: Any) -> str:
        sys.path += [entry for entry in path if entry not in sys.path]
        from agentsgym.rollout.rollout_workers.player import Player

        if version != own_version():
            raise RuntimeError(f"it runs agentsgym {own_version()}, the learner {version}")
        self._player = Player(dill.loads(setup), served)  # noqa: S301 - of the learner
        return os.uname().nodename


def _answer(call: Any, *arguments: Any) -> tuple[str, Any]:
    try:
        return "ok", call(*arguments)
    except BaseException as error:  # an actor never ends because of an exception
        return "error", describe(error)


@dataclass(slots=True, eq=False)
class RemotePlayer:
    """The learner's handle of one actor. `calls` are the open calls and their names, `heard` the
    time of the last answer (monotonic seconds), `idle` the worker's idle share."""

    number: int
    actor: Any
    ready: bool = False
    heard: float = field(default_factory=monotonic)
    idle: float = 0.0
    node: str = ""
    known_envs: set[tuple[str, str]] = field(default_factory=set)
    calls: dict[Any, str] = field(default_factory=dict)

    @classmethod
    def hired(
        cls, number: int, resources: Mapping[str, float], player: tuple[Any, ...]
    ) -> "RemotePlayer":
        """A new actor, which starts somewhere in the cluster and makes its `player` of these
        arguments, the first of which is a reference to the bytes of a `PlayerSetup`."""
        made = ray_package().remote(concurrency_groups={_POLLS: 1})(PlayerActor)
        hired = cls(number, made.options(**actor_options(resources)).remote())
        path = [entry for entry in sys.path if entry]
        hired.calls[hired.actor.start.remote(path, own_version(), *player)] = "start"
        return hired

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the player; the answer comes later, and is in `calls` until then.
        Returns the call."""
        call = self.actor.call.remote(method, *arguments)
        self.calls[call] = method
        return call

    def poll(self, timeout: float) -> None:
        """Call `poll`, beside the other calls."""
        method = self.actor.call.options(concurrency_group=_POLLS)
        self.calls[method.remote("poll", timeout)] = "poll"

    def dismiss(self) -> None:
        """End the actor, whatever it does."""
        self.calls.clear()
        ray = ray_package()
        if ray.is_initialized():  # otherwise Ray would start a cluster here to ask
            with suppress(Exception):  # the cluster may be gone
                ray.kill(self.actor)


def own_version() -> str:
    """The installed version of agentsgym."""
    try:
        return importlib.metadata.version("agentsgym")
    except importlib.metadata.PackageNotFoundError:
        return "from its sources"
