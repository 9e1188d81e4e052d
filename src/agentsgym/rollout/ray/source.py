"""A rollout source over actors of a Ray cluster.

A request goes to the actor that plays the fewest. A request whose actor is lost is played again;
Ray starts the actor again where the cluster has room. A request that has lost all but its last
actor is played alone, so that a trial that kills its actor takes no other with it in the end; after
`MOST_LOSSES` it is a failed rollout.
"""

import atexit
import logging
import pickle
import sys
import threading
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.envs import EnvPool
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import config_key
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout.failures import last_line
from agentsgym.rollout.processes.env import pack
from agentsgym.rollout.ray.actor import ActorSetup, RolloutActor, ServedWeights, own_version
from agentsgym.rollout.ray.cluster import actor_options, cluster_size, connect, ray_package
from agentsgym.types import Rollout, RolloutRequest, SamplingParams, WeightUpdate

logger = logging.getLogger(__name__)

MOST_LOSSES = 3
"""Lost actors after which a request is given up."""
START_SECONDS = 300.0
"""Seconds in which an actor must find its place and start."""
SILENT_SECONDS = 60.0
"""Seconds after which an actor that gives no sign of life is ended."""
_PING_PAUSE = 5.0
_ROUND_SECONDS = 0.5
_CLOSE_SECONDS = 2.0


class ActorsFailed(RuntimeError):
    """No actor is left, or none could be started; the message says why."""


@dataclass(slots=True, eq=False)
class _Play:
    """A request and how it is played; `over` gets its rollout, `losses` counts lost actors."""

    env: MultistepEnv
    key: str
    request: RolloutRequest
    sampling: SamplingParams
    over: list[Rollout]
    losses: int = 0

    @property
    def alone(self) -> bool:
        return self.losses == MOST_LOSSES - 1


@dataclass(slots=True, eq=False)
class _Actor:
    """The learner's handle of one actor. `plays` are its open calls; `ping` is the open sign of
    life, asked for at `asked`; `idle` are the seconds in which it had nothing to play, but for
    those since `idle_since`."""

    handle: Any
    ready: bool = False
    node: str = ""
    plays: dict[Any, _Play] = field(default_factory=dict)
    ping: Any = None
    asked: float = field(default_factory=monotonic)
    idle: float = 0.0
    idle_since: float = field(default_factory=monotonic)

    def takes(self, play: _Play, capacity: int) -> bool:
        """Whether it may play this too."""
        if not self.ready or any(other.alone for other in self.plays.values()):
            return False
        if play.alone:
            return not self.plays
        return sum(p.sampling == play.sampling for p in self.plays.values()) < capacity

    def ask_for_life(self) -> None:
        """Ask for a sign of life, which comes when the actor runs, also after a new start."""
        self.ping = self.handle.ping.options(max_task_retries=-1).remote()
        self.asked = monotonic()

    def add(self, call: Any, play: _Play) -> None:
        if not self.plays:
            self.idle = self.idle_seconds
        self.plays[call] = play

    def remove(self, call: Any) -> _Play:
        play = self.plays.pop(call)
        self.idle_since = monotonic()
        return play

    @property
    def idle_seconds(self) -> float:
        return self.idle if self.plays else self.idle + monotonic() - self.idle_since


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
        self._resources = dict(resources or {})
        self._capacity = -(-engine.capacity // workers)
        self._setup = self._packed_setup()  # kept for actors that start again
        self._packed: dict[str, Any] = {}
        # All that follows is shared with the thread and guarded by `_changed`.
        self._changed = threading.Condition(threading.RLock())
        self._served = ServedWeights(0, engine.weights)
        self._actors = self._start(workers)
        self._workers = workers
        self._waiting: deque[_Play] = deque()
        self._over: list[Rollout] = []
        self._names: set[str] = set()
        self._open = 0
        self._idle_before = 0.0
        self._error: Exception | None = None
        self._received = [0, 0]
        self._lost = self._replayed = 0
        self._warned = False
        self._reason = ""
        self._thread = threading.Thread(target=self._work, name="agentsgym-ray", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # runs before Ray disconnects

    def submit(self, requests: Sequence[RolloutRequest]) -> None:
        """Play these too. Raises UnknownEnvironment or ConfigError if an environment cannot be made
        or sent, ValueError for a session that is open, and the error that ended the playing."""
        with self._changed:
            self._waiting.extend(self._plays(requests, self._sampling, self._over))
            self._open += len(requests)
            self._hand_out()

    def poll(self, timeout: float | None = None) -> list[Rollout]:
        """The rollouts that ended since the last call; at least one while any is open, unless
        `timeout` seconds pass. Raises ActorsFailed if no actor is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or not self._open or self._error, timeout)
            if self._open and not self._over:
                self._check()
            over = self._over[:]
            self._over.clear()
            self._open -= len(over)
            return over

    def play(self, requests: Sequence[RolloutRequest], sampling: SamplingParams) -> list[Rollout]:
        """Play these with these sampling settings, and return them in their order; they begin
        before what waits. Raises ActorsFailed if no actor is left."""
        over: list[Rollout] = []
        with self._changed:
            self._waiting.extendleft(reversed(self._plays(requests, sampling, over)))
            self._hand_out()
            self._changed.wait_for(lambda: len(over) == len(requests) or self._error)
            if len(over) < len(requests):
                self._check()
        by_session = {rollout.session_id: rollout for rollout in over}
        return [by_session[request.session_id] for request in requests]

    def use_weights(self, update: WeightUpdate) -> None:
        """Bring weights to the servers, and let all further actions be sampled from them. The
        engine is always told, because the engines of several ranks talk to each other here."""
        if not update.changed:
            self._engine.update_weights(update)
            return
        with self._changed:
            sampling = bool(self._names)
        sampling = any(update.gather([sampling]))
        if sampling and self._served.loaded:
            self._serve(loaded=False)  # from now on they ask the servers which weights they have
        self._engine.update_weights(replace(update, sampling=sampling))
        self._serve(loaded=not sampling)

    def _serve(self, *, loaded: bool) -> None:
        """Let the actors use the weights of the learner's engine, which the servers have, or may
        be loading (`loaded=False`). Returns when all that play know them."""
        with self._changed:
            number = self._served.number + 1
            self._served = ServedWeights(number, self._engine.weights, loaded)
            calls = [a.handle.adopt.remote(self._served) for a in self._actors if a.ready]
        if calls:
            ray_package().wait(calls, num_returns=len(calls))

    @property
    def idle_seconds(self) -> float:
        """Seconds so far in which an actor had nothing to play; the mean over the actors."""
        with self._changed:
            idle = self._idle_before + sum(actor.idle_seconds for actor in self._actors)
            return idle / self._workers

    @property
    def figures(self) -> dict[str, float]:
        """`alive`: actors that can play; `lost`: actors lost so far; `replayed`: requests that
        began again; `idle_seconds`; `bytes`: the mean size of a rollout on its way here."""
        with self._changed:
            count, size = self._received
            return {
                "alive": float(sum(actor.ready for actor in self._actors)),
                "lost": float(self._lost),
                "replayed": float(self._replayed),
                "idle_seconds": self.idle_seconds,
                "bytes": size / max(1, count),
            }

    def close(self) -> None:
        """End all actors and drop what is open."""
        atexit.unregister(self.close)
        with self._changed:
            self._error = self._error or RuntimeError("the rollout source is closed")
            for actor in self._actors[:]:
                self._dismiss(actor)
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _start(self, workers: int) -> list[_Actor]:
        made = (
            ray_package()
            .remote(RolloutActor)
            .options(
                **actor_options(self._resources),
                max_restarts=-1,
                max_concurrency=2 * self._capacity + 8,
            )
        )
        path = [entry for entry in sys.path if entry]
        actors = [
            _Actor(made.remote(path, own_version(), self._setup, self._served))
            for _ in range(workers)
        ]
        for actor in actors:
            actor.ask_for_life()
        return actors

    def _packed_setup(self) -> Any:
        """A reference to the bytes of the actors' `ActorSetup`."""
        setup = ActorSetup(
            access=self._engine.access,
            tokenizer=self._engine.tokenizer,
            template_options=self._envs.template_options,
            capacity=self._capacity,
        )
        return ray_package().put(dill.dumps(setup))

    def _plays(
        self, requests: Sequence[RolloutRequest], sampling: SamplingParams, over: list[Rollout]
    ) -> list[_Play]:
        self._check()
        plays = []
        for request in requests:
            env = self._envs.of(request.env_class_path, request.env_config)
            key = config_key(request.env_class_path, request.env_config)
            plays.append(_Play(env, f"{request.env_class_path} {key}", request, sampling, over))
            if plays[-1].key not in self._packed:
                self._packed[plays[-1].key] = ray_package().put(pack(env, "ray.workers"))
        names = [request.session_id for request in requests]
        known = self._names.intersection(names) or {n for n in names if names.count(n) > 1}
        if known:
            raise ValueError(f"session {min(known)!r} is already open")
        self._names.update(names)
        return plays

    def _hand_out(self) -> None:
        """Give waiting requests, in their order, to the actors that play the fewest."""
        while self._waiting:
            play = self._waiting[0]
            able = [actor for actor in self._actors if actor.takes(play, self._capacity)]
            if not able:
                return
            chosen = min(able, key=lambda actor: len(actor.plays))
            call = chosen.handle.play.remote(
                play.request, play.sampling, self._served, play.key, [self._packed[play.key]]
            )
            chosen.add(call, self._waiting.popleft())

    def _finish(self, play: _Play, rollout: Rollout) -> None:
        self._names.discard(play.request.session_id)
        play.over.append(rollout)

    # -- in the thread --------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._error is None:
                with self._changed:
                    calls = [call for a in self._actors for call in (*a.plays, a.ping) if call]
                done = _wait_for_any(calls)
                with self._changed:
                    if self._error is None:
                        self._round(done)
                        self._changed.notify_all()
        except Exception as error:
            with self._changed:
                self._error = self._error or error
                for actor in self._actors[:]:
                    self._dismiss(actor)
                self._changed.notify_all()

    def _round(self, done: Sequence[Any]) -> None:
        finished = set(done)
        for actor in self._actors[:]:
            if actor.ping in finished:
                self._on_sign_of_life(actor)
            for call in [call for call in actor.plays if call in finished]:
                self._on_end(actor, call)
        self._check_actors()
        self._hand_out()

    def _on_sign_of_life(self, actor: _Actor) -> None:
        try:
            actor.node = ray_package().get(actor.ping)
        except ray_package().exceptions.RayError as error:
            self._drop(actor, f"could not be started: {last_line(str(error))}")
            return
        actor.ping = None
        if not actor.ready:
            actor.ready = True
            logger.debug("an actor plays on %s", actor.node)

    def _on_end(self, actor: _Actor, call: Any) -> None:
        if call not in actor.plays:  # the actor was dropped
            return
        exceptions = ray_package().exceptions
        play = actor.plays[call]
        try:
            data = ray_package().get(call)
        except exceptions.RayTaskError as error:
            self._drop(actor, f"failed: {last_line(str(error))}")
        except exceptions.RayError as error:
            self._note_loss(actor, f"died ({type(error).__name__})")
            self._lose(actor.remove(call))
        else:
            actor.remove(call)
            self._received[0] += 1
            self._received[1] += len(data)
            rollout = pickle.loads(zlib.decompress(data))  # noqa: S301 - of our own actor
            self._finish(play, rollout)

    def _check_actors(self) -> None:
        """Ask the actors for signs of life, and end those that give none. Raises ActorsFailed if no
        actor is left, or none could be started in time; warns once if some could not."""
        if not self._actors:
            raise ActorsFailed(f"no actor on Ray is left: {self._reason}")
        for actor in self._actors:
            if actor.ping is None and monotonic() - actor.asked > _PING_PAUSE:
                actor.ask_for_life()
            if actor.ready and actor.ping and monotonic() - actor.asked > SILENT_SECONDS:
                self._note_loss(actor, f"gave no answer for {SILENT_SECONDS:g} seconds")
                ray_package().kill(actor.handle, no_restart=False)
        starting = [monotonic() - actor.asked for actor in self._actors if not actor.ready]
        text = (
            f"an actor that reserves {self._resources or {'num_cpus': 1}} could not be started "
            f"within {START_SECONDS:g} seconds"
        )
        if len(starting) == len(self._actors) and min(starting) > START_SECONDS:
            raise ActorsFailed(f"{text}; the cluster has {cluster_size()}")
        if max(starting, default=0.0) > START_SECONDS and not self._warned:
            self._warned = True
            logger.warning("%s; %d play", text, len(self._actors) - len(starting))

    def _note_loss(self, actor: _Actor, how: str) -> None:
        """An actor is lost until Ray has started it again."""
        self._reason = f"the actor{f' on {actor.node}' if actor.node else ''} {how}"
        if actor.ready:
            actor.ready = False
            actor.ask_for_life()
            self._lost += 1
            logger.warning("%s; its rollouts are played again", self._reason)

    def _drop(self, actor: _Actor, how: str) -> None:
        """An actor is lost for good; others play its requests."""
        self._reason = f"the actor{f' on {actor.node}' if actor.node else ''} {how}"
        logger.warning("%s; it is not used any more", self._reason)
        self._lost += 1
        for call in list(actor.plays):
            self._lose(actor.remove(call))
        self._dismiss(actor)

    def _dismiss(self, actor: _Actor) -> None:
        self._idle_before += actor.idle_seconds
        self._actors.remove(actor)
        ray = ray_package()
        if ray.is_initialized():  # otherwise Ray would start a cluster here to ask
            with suppress(Exception):  # the cluster may be gone
                ray.kill(actor.handle)

    def _lose(self, play: _Play) -> None:
        """Let a request wait again, first in line, or give it up."""
        play.losses += 1
        if play.losses < MOST_LOSSES:
            self._replayed += 1
            self._waiting.appendleft(play)
        else:
            self._finish(play, _given_up(play, self._reason))


def _wait_for_any(calls: Sequence[Any]) -> list[Any]:
    """The calls that have finished, after a while at most. Ray does not wait where there is no
    call."""
    if not calls:
        sleep(_ROUND_SECONDS)
        return []
    wait = ray_package().wait
    if not wait(list(calls), num_returns=1, timeout=_ROUND_SECONDS)[0]:
        return []
    done: list[Any] = wait(list(calls), num_returns=len(calls), timeout=0)[0]
    return done


def _given_up(play: _Play, why: str) -> Rollout:
    """The failed rollout of a request that no actor has survived."""
    env, request = play.env, play.request
    return Rollout(
        session_id=request.session_id,
        group=request.group,
        index=request.index,
        env_class_path=env.class_path,
        env_config=env.env_config,
        task_data=request.task_data,
        episodes=(),
        rows=(),
        error=f"{env.name}, session {request.session_id}: {MOST_LOSSES} actors were lost while "
        f"they played it; the last: {why}",
        seed=request.seed,
    )
