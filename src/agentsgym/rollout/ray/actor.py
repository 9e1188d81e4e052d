"""An actor of a Ray cluster that plays whole rollouts, with an HTTP engine of its own.

The learner finds each environment's class and makes the environment; an actor gets the object, and
resolves no name of a dataset row. So what rows may name is decided in one place. The noise of a
rollout depends on its request alone, so a request may be played again by any actor.
"""

import importlib.metadata
import os
import pickle
import queue
import sys
import threading
import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs.base import MultistepEnv
from agentsgym.generation.vllm.engine import ServerAccess, VLLMEngine
from agentsgym.generation.vllm.weights import Weights
from agentsgym.rollout.processes.env import hosted
from agentsgym.rollout.processes.serve import unpack
from agentsgym.rollout.ray.cluster import ray_package
from agentsgym.rollout.scheduler import Scheduler
from agentsgym.types import Rollout, RolloutRequest, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSetup:
    """What an actor needs at its start.

    Args:
        access: how its engines reach the servers.
        tokenizer: the learner's tokenizer.
        template_options: extra arguments of the tokenizer's chat template.
        capacity: sessions that it plays at once with the same sampling settings.
    """

    access: ServerAccess
    tokenizer: Any
    template_options: Mapping[str, Any]
    capacity: int


@dataclass(frozen=True, slots=True)
class ServedWeights:
    """The learner's weights (None: the servers' own), with a number that grows. The servers have
    them, or may be loading them right now (`loaded=False`)."""

    number: int
    weights: Weights | None = None
    loaded: bool = True

    def set_in(self, engine: VLLMEngine) -> None:
        """Let an engine of another process sample from these."""
        if self.weights is not None:
            engine.adopt(self.weights, loaded=self.loaded)


class RolloutActor:
    """The actor's object in the cluster. Its methods run in threads.

    `setup` are the bytes of an `ActorSetup`. Raises RuntimeError if the learner has another version
    of the package, and EngineUnavailable if no server answers.
    """

    def __init__(self, path: list[str], version: str, setup: bytes, served: ServedWeights) -> None:
        sys.path += [entry for entry in path if entry not in sys.path]
        if version != own_version():
            raise RuntimeError(f"it runs agentsgym {own_version()}, the learner {version}")
        self._setup: ActorSetup = dill.loads(setup)  # noqa: S301 - of the learner
        self._served = served
        self._lock = threading.Lock()
        self._envs: dict[str, MultistepEnv] = {}
        self._players: dict[SamplingParams, _SchedulerThread] = {}
        self._player(SamplingParams())  # an actor that cannot play says so at its start

    def ping(self) -> str:
        """The name of its node."""
        return os.uname().nodename

    def play(
        self,
        request: RolloutRequest,
        sampling: SamplingParams,
        served: ServedWeights,
        env: str,
        packed: list[Any],
    ) -> bytes:
        """Play a request in the environment `env`, of whose bytes `packed` holds a reference;
        return the Rollout, pickled and compressed. Raises what ended the playing."""
        self.adopt(served)
        with self._lock:
            if env not in self._envs:
                self._envs[env] = self._unpacked(ray_package().get(packed[0]))
            player = self._player(sampling)
        rollout = player.submit(self._envs[env], request).result()
        return zlib.compress(pickle.dumps(rollout), 1)

    def adopt(self, served: ServedWeights) -> None:
        """Sample what is requested from now on from these weights, unless newer ones are known."""
        with self._lock:
            if served.number > self._served.number:
                self._served = served
                for player in self._players.values():
                    served.set_in(player.engine)

    def _unpacked(self, payload: bytes) -> MultistepEnv:
        env = unpack(payload).with_tokenizer(self._setup.tokenizer)
        env.set_template_options(self._setup.template_options)
        return hosted(env)

    def _player(self, sampling: SamplingParams) -> "_SchedulerThread":
        if sampling not in self._players:
            setup = self._setup
            engine = VLLMEngine.reaching(setup.access, setup.tokenizer, setup.capacity)
            self._served.set_in(engine)
            self._players[sampling] = _SchedulerThread(engine, sampling)
        return self._players[sampling]


class _SchedulerThread:
    """A scheduler in a thread of its own."""

    def __init__(self, engine: VLLMEngine, sampling: SamplingParams) -> None:
        self.engine = engine
        self._scheduler = Scheduler(DirectOutputAgent(engine, sampling))
        self._submitted: queue.SimpleQueue[tuple[MultistepEnv, RolloutRequest, Future[Rollout]]]
        self._submitted = queue.SimpleQueue()
        self._open: dict[str, Future[Rollout]] = {}
        threading.Thread(target=self._work, name="agentsgym-rollouts", daemon=True).start()

    def submit(self, env: MultistepEnv, request: RolloutRequest) -> "Future[Rollout]":
        future: Future[Rollout] = Future()
        self._submitted.put((env, request, future))
        self._scheduler.wake()
        return future

    def _work(self) -> None:
        try:
            while True:
                while not self._submitted.empty() or not self._scheduler.can_advance:
                    env, request, future = self._submitted.get()
                    self._open[request.session_id] = future
                    self._scheduler.add([(env, request)])
                for rollout in self._scheduler.advance():
                    self._open.pop(rollout.session_id).set_result(rollout)
        except BaseException as error:  # whatever ends the playing, the learner must know it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        for future in self._open.values():
            future.set_exception(error)
        while True:
            self._submitted.get()[2].set_exception(error)


def own_version() -> str:
    """The installed version of agentsgym."""
    try:
        return importlib.metadata.version("agentsgym")
    except importlib.metadata.PackageNotFoundError:
        return "from its sources"
