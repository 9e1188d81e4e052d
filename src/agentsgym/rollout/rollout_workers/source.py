"""A rollout source over actors of a Ray cluster, each of which plays whole rollouts.

A request goes to the worker that plays the fewest, and its rollout comes back as bytes. The noise
of a rollout depends on its request alone, so the number and the place of the workers do not change
it. If a worker or its node is lost, others play its requests again, and a new worker takes its
place where the cluster has room.
"""

import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.envs import EnvPool
from agentsgym.envs.dataset import config_key
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout.rollout_workers.actor import RemotePlayer
from agentsgym.rollout.rollout_workers.board import MOST_LOSSES, Board, Ticket
from agentsgym.rollout.rollout_workers.crew import POLL_SECONDS, Crew, Event, wait_for_any
from agentsgym.rollout.rollout_workers.player import (
    EnvParcel,
    Played,
    PlayerSetup,
    Served,
    unpacked_rollout,
)
from agentsgym.rollout.workers.env import pack
from agentsgym.rollout.workers.ray_actor import connect, ray_package
from agentsgym.types import Rollout, RolloutRequest, SamplingParams, WeightUpdate

logger = logging.getLogger(__name__)

_ROUND_SECONDS = 0.5
_CLOSE_SECONDS = 2.0
_SOURCES: "weakref.WeakSet[RaySource]" = weakref.WeakSet()


class RaySource:
    """A `RolloutSource` with `workers` rollout workers, which sample from the servers of `engine`.

    Workers start with the first request, and after `close` with the next one.

    Args:
        engine: the learner's engine; each worker gets its share of its capacity.
        envs: the environments; every one that rows name is sent to the workers.
        sampling: the sampling settings.
        workers: number of actors.
        resources: what each reserves, as `worker_resources` of an environment.

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
        connect("rollout_workers is set")
        self._engine = engine
        self._envs = envs
        self._sampling = sampling
        self._workers = workers
        self._resources = dict(resources or {})
        self._capacity = -(-engine.capacity // workers)
        self._setup = dill.dumps(
            PlayerSetup(
                access=engine.access,
                tokenizer=engine.tokenizer,
                template_options=envs.template_options,
                capacity=self._capacity,
            )
        )
        self._parcels: dict[tuple[str, str], Any] = {}
        # All that follows is shared with the thread and guarded by `_changed`.
        self._changed = threading.Condition(threading.RLock())
        self._crew: Crew | None = None
        self._thread: threading.Thread | None = None
        self._board = Board()
        self._over: list[Rollout] = []
        self._open = 0
        self._idle_before = 0.0
        self._served = Served(engine.weights)
        self._error: Exception | None = None
        self._received = [0, 0]
        self._lost = self._replayed = 0
        _SOURCES.add(self)

    def submit(self, requests: Sequence[RolloutRequest]) -> None:
        """Play these too. Raises UnknownEnvironment or ConfigError if an environment cannot be made
        or sent, and the error that ended the playing."""
        with self._changed:
            self._add(requests, self._sampling, self._over)
            self._open += len(requests)

    def poll(self, timeout: float | None = None) -> list[Rollout]:
        """The rollouts that ended since the last call; at least one while any is open, unless
        `timeout` seconds pass. Raises WorkersFailed if no worker is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or not self._open or self._ended, timeout)
            if self._open and not self._over:
                self._check()
            over = self._over[:]
            self._over.clear()
            self._open -= len(over)
            return over

    def play(self, requests: Sequence[RolloutRequest], sampling: SamplingParams) -> list[Rollout]:
        """Play these with these sampling settings, and return them in their order; what was
        submitted waits meanwhile, between two actions. Raises WorkersFailed if no worker is
        left."""
        over: list[Rollout] = []
        with self._changed, self._others_paused():
            self._add(requests, sampling, over, first=True)
            self._changed.wait_for(lambda: len(over) == len(requests) or self._ended)
            self._check()
        if len(over) < len(requests):
            raise RuntimeError("the rollout workers were ended while they played")
        found = {rollout.session_id: rollout for rollout in over}
        return [found[request.session_id] for request in requests]

    @contextmanager
    def _others_paused(self) -> Iterator[None]:
        """Within this context the sessions that were submitted wait, if there are any."""
        others = self._board.open > 0
        try:
            for player in self._players() if others else []:
                player.call("pause")
            yield
        finally:
            for player in self._players() if others else []:
                player.call("go_on")
            self._hand_out()

    def use_weights(self, update: WeightUpdate) -> None:
        """Bring weights to the servers, and let all further actions be sampled from them. The
        engine is always told, because the engines of several ranks talk to each other here."""
        if not update.changed:
            self._engine.update_weights(update)
            return
        sampling = any(update.gather([self._board.open > 0]))
        if sampling and self._served.loaded:
            self._follow(loaded=False)  # from now on they ask the servers which weights they have
        self._engine.update_weights(replace(update, sampling=sampling))
        self._follow(loaded=not sampling)

    def _follow(self, *, loaded: bool) -> None:
        """Let the workers use the weights of the learner's engine, which the servers have, or may
        be loading (`loaded=False`). Returns when all that play know them."""
        with self._changed:
            self._served = Served(self._engine.weights, loaded)
            calls = [(player, player.call("adopt", self._served)) for player in self._players()]
            crew = self._crew
            told = [call for player, call in calls if player.ready]
        # Not left to the thread, which may be waiting for the calls that were open before.
        while told and crew is self._crew and self._error is None:
            done = wait_for_any(told, _ROUND_SECONDS)
            told = [call for call in told if call not in done]
            self._settle(crew, done)

    @property
    def idle_seconds(self) -> float:
        """Seconds so far in which a worker had nothing to play; the mean over the workers."""
        with self._changed:
            return self._idle_before + sum(p.idle for p in self._players()) / self._workers

    def close(self) -> None:
        """End all workers and drop what is open."""
        with self._changed:
            crew, self._crew = self._crew, None
            thread, self._thread = self._thread, None
            self._replayed += self._board.replayed
            self._board, self._open, self._error = Board(), 0, None
            self._over.clear()
            self._changed.notify_all()
            if crew is not None:
                self._lost += crew.lost
                self._idle_before += sum(p.idle for p in crew.players.values()) / self._workers
                crew.dismiss()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_SECONDS)

    @property
    def figures(self) -> dict[str, float]:
        """`alive`: workers that can play; `lost`: workers lost so far; `replayed`: requests that
        began again; `idle_seconds`; `bytes`: the mean size of a rollout on its way here."""
        with self._changed:
            ready = self._crew.ready if self._crew else []
            count, size = self._received
            return {
                "alive": float(len(ready)),
                "lost": float(self._lost + (self._crew.lost if self._crew else 0)),
                "replayed": float(self._replayed + self._board.replayed),
                "idle_seconds": self.idle_seconds,
                "bytes": size / max(1, count),
            }

    @property
    def _ended(self) -> bool:
        return self._crew is None or self._error is not None

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _start(self) -> None:
        if self._crew is None:
            self._crew = Crew(self._workers, self._resources, self._setup)
            self._crew.hire(self._served)
            self._thread = threading.Thread(
                target=self._work, args=(self._crew,), name="agentsgym-rollout-workers", daemon=True
            )
            self._thread.start()

    def _add(
        self,
        requests: Sequence[RolloutRequest],
        sampling: SamplingParams,
        over: list[Rollout],
        *,
        first: bool = False,
    ) -> None:
        self._check()
        tickets = [
            Ticket(self._envs.of(r.env_class_path, r.env_config), r, sampling, over, first)
            for r in requests
        ]
        self._start()
        for ticket in tickets:
            self._parcel(ticket)
        self._board.add(tickets)
        self._hand_out()

    def _parcel(self, ticket: Ticket) -> Any:
        """A reference to the environment of a request, which is stored in Ray once for each way in
        which rows name it."""
        request, key = ticket.request, _name(ticket)
        if key not in self._parcels:
            packed = pack(ticket.env, "rollout_workers")
            parcel = EnvParcel(request.env_class_path, request.env_config, packed)
            self._parcels[key] = ray_package().put(parcel)
        return self._parcels[key]

    def _players(self) -> list[RemotePlayer]:
        return list(self._crew.players.values()) if self._crew else []

    def _hand_out(self) -> None:
        if self._crew is None:
            return
        ready = {player.number: player for player in self._crew.ready}
        for number, tickets in self._board.hand_out(ready, self._capacity).items():
            for kind in dict.fromkeys((t.sampling, t.first) for t in tickets):
                alike = [t for t in tickets if (t.sampling, t.first) == kind]
                self._send(ready[number], alike, *kind)

    def _send(
        self, player: RemotePlayer, tickets: Sequence[Ticket], sampling: SamplingParams, first: bool
    ) -> None:
        parcels = {_name(ticket): self._parcel(ticket) for ticket in tickets}
        fresh = [parcels[known] for known in parcels if known not in player.known_envs]
        player.known_envs.update(parcels)
        player.call("submit", [ticket.request for ticket in tickets], sampling, first, *fresh)

    # -- in the thread --------------------------------------------------------------------------

    def _work(self, crew: Crew) -> None:
        try:
            while self._crew is crew and self._error is None:
                with self._changed:
                    calls = crew.calls()
                self._settle(crew, wait_for_any(calls, _ROUND_SECONDS))
        except Exception as error:
            self._fail(crew, error)

    def _settle(self, crew: Crew | None, done: Sequence[Any]) -> None:
        """React to calls that have finished, in any thread; an error ends the playing."""
        with self._changed:
            if crew is None or self._crew is not crew or self._error is not None:
                return
            try:
                self._round(crew, done)
                self._changed.notify_all()
            except Exception as error:
                self._fail(crew, error)

    def _fail(self, crew: Crew, error: Exception) -> None:
        with self._changed:
            if self._crew is crew:
                self._error = error
                crew.dismiss()
            self._changed.notify_all()

    def _round(self, crew: Crew, done: Sequence[Any]) -> None:
        for call in done:
            event = crew.answer(call)
            if event is not None:
                self._react(crew, event)
        for event in crew.silent():
            self._react(crew, event)
        crew.check_start()
        crew.hire(self._served)
        self._hand_out()

    def _react(self, crew: Crew, event: Event) -> None:
        react: Mapping[str, Callable[[Crew, RemotePlayer, Any], None]] = {
            "start": self._on_start,
            "poll": self._on_poll,
            "lost": self._on_lost,
        }
        if event.method in react:
            react[event.method](crew, event.player, event.value)

    def _on_start(self, crew: Crew, player: RemotePlayer, node: str) -> None:
        logger.debug("a rollout worker plays on %s", node)
        player.poll(POLL_SECONDS)

    def _on_poll(self, crew: Crew, player: RemotePlayer, played: Played) -> None:
        player.poll(POLL_SECONDS)
        player.idle = played.idle
        for session_id, data in played.rollouts:
            crew.succeeded(player)
            ticket = self._board.finish(session_id)
            if ticket is not None:
                self._received[0] += 1
                self._received[1] += len(data)
                ticket.over.append(_unpacked(ticket, data))

    def _on_lost(self, crew: Crew, player: RemotePlayer, why: str) -> None:
        self._idle_before += player.idle / self._workers
        for ticket in self._board.lose(player.number):
            crew.succeeded(player)
            ticket.over.append(_given_up(ticket, why))


@atexit.register
def _close_all() -> None:
    """Before Ray disconnects, which its own function for the end of the program does."""
    for source in list(_SOURCES):
        source.close()


def _name(ticket: Ticket) -> tuple[str, str]:
    """How a worker finds the environment of a request (`EnvPool.of`)."""
    request = ticket.request
    return request.env_class_path, config_key(request.env_class_path, request.env_config)


def _unpacked(ticket: Ticket, data: bytes) -> Rollout:
    return unpacked_rollout(data, ticket.env.env_config, ticket.request.task_data)


def _given_up(ticket: Ticket, why: str) -> Rollout:
    """The failed rollout of a request that no worker has survived."""
    env, request = ticket.env, ticket.request
    return Rollout(
        session_id=request.session_id,
        group=request.group,
        index=request.index,
        env_class_path=env.class_path,
        env_config=env.env_config,
        task_data=request.task_data,
        episodes=(),
        rows=(),
        error=f"{env.name}, session {request.session_id}: {MOST_LOSSES} rollout workers were lost "
        f"while they played it; the last: {why}",
        seed=request.seed,
    )
