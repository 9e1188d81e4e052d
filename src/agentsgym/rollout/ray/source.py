"""A rollout source over actors of a Ray cluster, each of which has a `LocalSource`.

A request goes to the actor that plays the fewest. What a lost actor played is played again by the
others, and a new actor takes its place where the cluster has room. A request that has lost all but
its last actor is played alone, so that a trial that kills its actor takes no other with it in the
end; after `MOST_LOSSES` it is a failed rollout.
"""

import logging
import os
import pickle
import socket
import sys
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep
from types import ModuleType
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.envs import EnvPool
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.extras import require
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout.failures import last_line
from agentsgym.rollout.processes.env import pack
from agentsgym.rollout.ray.actor import ActorSetup, RolloutActor, ServedWeights
from agentsgym.rollout.session import Session
from agentsgym.rollout.trial import rollout_of
from agentsgym.types import Rollout, RolloutRequest, SamplingParams, WeightUpdate
from agentsgym.types.names import ConfigError

logger = logging.getLogger(__name__)

MOST_LOSSES = 3
"""Lost actors after which a request is given up."""
START_SECONDS = 300.0
"""Seconds in which the first actor must find its place and start."""
REACH_SECONDS = 10.0
"""Seconds in which the address of a cluster must accept a connection."""
_ROUND_SECONDS = 0.5
_QUEUE = 2
"""An actor gets this many times the requests that it plays at once, so that it has some to begin
while the learner is at work."""
_OTHER_CALLS = 4
"""Threads of an actor beside those that play."""
_NO_CLUSTER = "ray.workers is set, but this process has no Ray cluster"
_WHAT_TO_DO = (
    "Start one (`ray start --head`) and set RAY_ADDRESS to its HOST:PORT, or to auto for the one "
    "of this machine"
)
_OWN_OPTIONS = ("num_cpus", "num_gpus", "memory")


class ActorsFailed(RuntimeError):
    """No actor is left, or none could be started; the message says why."""


def connect() -> None:
    """Connect this process to the Ray cluster of RAY_ADDRESS, unless `ray.init` has connected it.
    No cluster is started or looked for.

    Raises ConfigError if there is none, MissingExtra if Ray is not installed.
    """
    ray = _ray()
    if ray.is_initialized():
        return
    try:
        address = os.environ["RAY_ADDRESS"]
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except KeyError:
        raise ConfigError(f"{_NO_CLUSTER}: RAY_ADDRESS is not set. {_WHAT_TO_DO}") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{_NO_CLUSTER}: {type(error).__name__} at {address}: {error}. {_WHAT_TO_DO}"
        ) from error


def _ray() -> ModuleType:
    return require("ray", "ray")


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT: `ray.init` would try it for five minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()


@dataclass(slots=True, eq=False)
class _Play:
    """A request and how it is played; `losses` counts lost actors."""

    env: MultistepEnv
    request: RolloutRequest
    sampling: SamplingParams
    first: bool
    losses: int = 0

    @property
    def alone(self) -> bool:
        return self.losses == MOST_LOSSES - 1


@dataclass(slots=True, eq=False)
class _Actor:
    """One actor and its open calls, each with what it plays: None while it starts. `idle` are the
    seconds in which it had nothing to play."""

    handle: Any
    calls: dict[Any, _Play | None]
    started: bool = False
    idle: float = 0.0

    @property
    def plays(self) -> list[_Play]:
        return [play for play in self.calls.values() if play is not None]

    def takes(self, play: _Play, most: int) -> bool:
        """Whether it may play this too."""
        if not self.started or any(other.alone for other in self.plays):
            return False
        return not self.calls if play.alone else len(self.calls) < most


class RaySource:
    """A `RolloutSource` with `workers` actors, which sample from the servers of `engine`.

    Args:
        engine: the learner's engine; each actor gets its share of its capacity.
        envs: the environments; every one that rows name is sent to the actors.
        sampling: the sampling settings.
        workers: number of actors.
        resources: what each reserves: num_cpus (1 by default), num_gpus, memory in bytes, or a
            resource of its own name.

    Raises ConfigError if this process has no Ray cluster, MissingExtra if Ray is not installed.
    """

    @staticmethod
    def check(engine: Any) -> None:
        """Raise TypeError for an engine whose servers others cannot reach, and what `connect`
        raises."""
        if not isinstance(engine, VLLMEngine):
            raise TypeError(
                "ray.workers sample from the servers of a VLLMEngine, not from a "
                f"{type(engine).__name__}"
            )
        connect()

    def __init__(
        self,
        engine: VLLMEngine,
        envs: EnvPool,
        sampling: SamplingParams,
        *,
        workers: int,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        connect()
        self._engine = engine
        self._envs = envs
        self._sampling = sampling
        self._workers = workers
        self._resources = dict(resources or {})
        capacity = -(-engine.capacity // workers)
        self._most = _QUEUE * capacity
        setup = ActorSetup(
            engine=engine.elsewhere,
            tokenizer=engine.tokenizer,
            template_options=envs.template_options,
            capacity=capacity,
            sampling=sampling,
        )
        self._setup = _ray().put(dill.dumps(setup))
        self._packed: dict[MultistepEnv, Any] = {}
        self._served = ServedWeights(0, engine.weights)
        self._waiting: deque[_Play] = deque()
        self._over: dict[str, Rollout] = {}
        self._idle_before = 0.0
        self._lost = self._replayed = 0
        self._reasons: deque[str] = deque(maxlen=MOST_LOSSES)
        self._closed = False
        self._actors = [self._start() for _ in range(workers)]

    def submit(self, requests: Sequence[RolloutRequest]) -> None:
        """Play these too. Raises UnknownEnvironment or ConfigError if an environment cannot be made
        or sent, and RuntimeError after `close`."""
        self._waiting.extend(self._plays(requests, self._sampling, first=False))
        self._receive(0.0)

    def poll(self, timeout: float | None = None) -> list[Rollout]:
        """As in `RolloutSource`. Raises ActorsFailed if no actor is left."""
        until = float("inf") if timeout is None else monotonic() + timeout
        self._receive(0.0)
        while self._open and not self._over and monotonic() < until:
            self._check()
            self._receive(min(_ROUND_SECONDS, until - monotonic()))
        over, self._over = self._over, {}
        return list(over.values())

    def play(self, requests: Sequence[RolloutRequest], sampling: SamplingParams) -> list[Rollout]:
        """As in `RolloutSource`. Raises ActorsFailed if no actor is left."""
        self._waiting.extendleft(reversed(self._plays(requests, sampling, first=True)))
        names = [request.session_id for request in requests]
        self._receive(0.0)
        while not self._over.keys() >= {*names}:
            self._check()
            self._receive(_ROUND_SECONDS)
        return [self._over.pop(name) for name in names]

    def use_weights(self, update: WeightUpdate) -> None:
        """Bring weights to the servers, and let all further actions be sampled from them. The
        engine is always told, because the engines of several ranks talk to each other here."""
        if update.changed:
            self._serve()  # from now on they ask the servers which weights they have
        self._engine.update_weights(update)
        if update.changed:
            self._serve()

    def _serve(self) -> None:
        """Let the actors use the weights of the learner's engine. Returns when all that play know
        them."""
        self._served = ServedWeights(self._served.number + 1, self._engine.weights)
        calls = [actor.handle.adopt.remote(self._served) for actor in self._actors if actor.started]
        if calls:
            _ray().wait(calls, num_returns=len(calls))

    @property
    def idle_seconds(self) -> float:
        """The mean over the actors, as far as they have said."""
        return (self._idle_before + sum(actor.idle for actor in self._actors)) / self._workers

    @property
    def figures(self) -> dict[str, float]:
        """`alive`: actors that can play; `lost`: actors lost so far; `replayed`: requests that
        began again."""
        return {
            "alive": float(sum(actor.started for actor in self._actors)),
            "lost": float(self._lost),
            "replayed": float(self._replayed),
        }

    def close(self) -> None:
        """End all actors and drop what is open."""
        self._closed = True
        for actor in self._actors[:]:
            self._end(actor)

    @property
    def _open(self) -> bool:
        return bool(self._waiting) or any(actor.plays for actor in self._actors)

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("the rollout source is closed")
        if not self._actors:
            raise ActorsFailed(f"no actor on Ray is left: {'; '.join(self._reasons)}")
        started = any(actor.started for actor in self._actors)
        if not started and monotonic() - self._began > START_SECONDS:
            resources = _ray().cluster_resources()
            has = ", ".join(f"{n} {resources[n]:g}" for n in ("CPU", "GPU") if n in resources)
            raise ActorsFailed(
                f"an actor that reserves {self._resources or {'num_cpus': 1}} could not be started "
                f"within {START_SECONDS:g} seconds; the cluster has {has}"
            )

    def _start(self) -> _Actor:
        options = {"num_cpus": 1} | {n: v for n, v in self._resources.items() if n in _OWN_OPTIONS}
        others = {n: v for n, v in self._resources.items() if n not in _OWN_OPTIONS}
        made = _ray().remote(RolloutActor)
        made = made.options(
            **options,
            resources=others,
            scheduling_strategy="SPREAD",
            max_concurrency=self._most + _OTHER_CALLS,
        )
        self._began = monotonic()
        path = [entry for entry in sys.path if entry]
        handle = made.remote(path, self._setup, self._served)
        return _Actor(handle, {handle.ready.remote(): None})

    def _plays(
        self, requests: Sequence[RolloutRequest], sampling: SamplingParams, *, first: bool
    ) -> list[_Play]:
        self._check()
        envs = [self._envs.of(r.env_class_path, r.env_config) for r in requests]
        for env in envs:
            if env not in self._packed:
                self._packed[env] = _ray().put(pack(env, "ray.workers"))
        return [_Play(env, r, sampling, first) for env, r in zip(envs, requests, strict=True)]

    def _hand_out(self) -> None:
        """Give waiting requests, in their order, to the actors that play the fewest."""
        while self._waiting:
            play = self._waiting[0]
            able = [actor for actor in self._actors if actor.takes(play, self._most)]
            if not able:
                break
            chosen = min(able, key=lambda actor: len(actor.calls))
            call = chosen.handle.play.remote(
                play.request, play.sampling, play.first, self._served, self._packed[play.env]
            )
            chosen.calls[call] = self._waiting.popleft()

    def _receive(self, seconds: float) -> None:
        """Take what calls have returned, after `seconds` at most, and hand out what waits."""
        calls = {call: actor for actor in self._actors for call in actor.calls}
        if calls:
            wait = _ray().wait
            done = wait([*calls], num_returns=len(calls), timeout=0)[0]
            for call in done or wait([*calls], num_returns=1, timeout=seconds)[0]:
                if call in calls[call].calls:  # its actor was not lost just now
                    self._take(calls[call], call)
        else:  # Ray does not wait where there is no call
            sleep(seconds)
        self._hand_out()

    def _take(self, actor: _Actor, call: Any) -> None:
        exceptions = _ray().exceptions
        try:
            answer = _ray().get(call)
        except exceptions.RayError as error:
            if isinstance(error, exceptions.RayTaskError) or not actor.started:
                how = "failed" if actor.started else "could not be started"
                self._lose(actor, f"{how}: {last_line(str(error))}")
            else:
                self._lose(actor, f"died ({type(error).__name__})")
                self._actors.append(self._start())
            return
        actor.started = True
        if actor.calls.pop(call) is not None:
            data, actor.idle = answer
            rollout: Rollout = pickle.loads(zlib.decompress(data))  # noqa: S301 - our own actor
            self._over[rollout.session_id] = rollout

    def _lose(self, actor: _Actor, how: str) -> None:
        """An actor is lost; its requests wait again, before the others, or are given up."""
        reason = f"an actor {how}"
        self._reasons.append(reason)
        self._lost += 1
        logger.warning("%s; its rollouts are played again", reason)
        for play in reversed(actor.plays):
            play.losses += 1
            if play.losses < MOST_LOSSES:
                self._replayed += 1
                self._waiting.appendleft(play)
            else:
                self._over[play.request.session_id] = _lost_rollout(play, reason)
        self._end(actor)

    def _end(self, actor: _Actor) -> None:
        self._idle_before += actor.idle
        actor.calls.clear()
        self._actors.remove(actor)
        ray = _ray()
        if ray.is_initialized():  # otherwise Ray would start a cluster here to ask
            with suppress(Exception):  # the cluster may be gone
                ray.kill(actor.handle)


def _lost_rollout(play: _Play, why: str) -> Rollout:
    """The failed rollout of a request that no actor has survived."""
    session = Session(play.env, play.request)
    session.error = (
        f"{session.where()}: {MOST_LOSSES} actors were lost while they played it; the last: {why}"
    )
    return rollout_of(session)
