"""What a rollout worker is, wherever it runs: rollout sources of its own, over HTTP engines of its
own, in environments that its learner sent.

The learner finds each environment's class and makes the environment; a worker gets the object, and
resolves no name of a dataset row. So what rows may name is decided in one place.
"""

import pickle
import queue
import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import config_key
from agentsgym.generation.vllm.engine import ServerAccess, VLLMEngine
from agentsgym.generation.vllm.weights import Weights
from agentsgym.rollout.local_source import LocalSource
from agentsgym.rollout.rollout_workers.idle_time import IdleTime
from agentsgym.rollout.workers.main import unpack
from agentsgym.types import Rollout, RolloutRequest, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerSetup:
    """What the learner tells a worker at the start.

    Args:
        access: how its engines reach the servers.
        tokenizer: the learner's tokenizer.
        template_options: extra arguments of the tokenizer's chat template.
        capacity: sessions that it plays at once.
    """

    access: ServerAccess
    tokenizer: Any
    template_options: Mapping[str, Any]
    capacity: int


@dataclass(frozen=True, slots=True)
class EnvParcel:
    """An environment on its way to a worker: the class path and the configuration of the rows that
    it plays, and the environment as `workers.env.pack` packs it."""

    path: str
    config: Mapping[str, Any]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Served:
    """The learner's weights (None: the servers' own). The servers have them, or may be loading them
    right now (`loaded=False`)."""

    weights: Weights | None = None
    loaded: bool = True

    def tell(self, engine: VLLMEngine) -> None:
        """Let an engine of another process sample from these."""
        if self.weights is not None:
            engine.adopt(self.weights, loaded=self.loaded)


@dataclass(frozen=True, slots=True)
class Played:
    """Rollouts that ended, as bytes, by their sessions, and the worker's idle seconds so far."""

    rollouts: list[tuple[str, bytes]]
    idle: float


class Player:
    """Plays requests until `close`; `poll` may be called in another thread than the rest.

    Raises EngineUnavailable if no server answers.
    """

    def __init__(self, setup: PlayerSetup, served: Served) -> None:
        self._setup = setup
        self._served = served
        self._envs = _SentEnvs()
        self._over: queue.SimpleQueue[Rollout | BaseException] = queue.SimpleQueue()
        self._lanes: dict[tuple[SamplingParams, bool], _Lane] = {}
        self._idle = IdleTime()
        self._lane(SamplingParams())  # a worker that cannot play says so before it is asked to

    def submit(
        self,
        requests: Sequence[RolloutRequest],
        sampling: SamplingParams,
        first: bool,
        *parcels: EnvParcel,
    ) -> None:
        """Play these, which a pause does not stop if they are to be played `first`; `parcels` are
        environments that are needed from now on."""
        for parcel in parcels:
            self._envs.add(parcel, self._setup)
        self._idle.opened(len(requests))
        self._lane(sampling, first).submit(requests)

    def pause(self) -> None:
        """Let sessions wait between two actions, but for those that are played first."""
        for (_, first), lane in self._lanes.items():
            if not first:
                lane.source.pause()

    def go_on(self) -> None:
        """End the pause, if there is one."""
        for (_, first), lane in self._lanes.items():
            if not first:
                lane.source.go_on()

    def poll(self, timeout: float) -> Played:
        """The rollouts that ended since the last call; waits `timeout` seconds for one. Raises the
        error that ended the playing."""
        over: list[Rollout] = []
        with suppress(queue.Empty):
            found = self._over.get(timeout=timeout)
            while True:
                if isinstance(found, BaseException):
                    raise found
                over.append(found)
                found = self._over.get_nowait()
        self._idle.closed(len(over))
        packed = [(rollout.session_id, packed_rollout(rollout)) for rollout in over]
        return Played(packed, self._idle.seconds)

    def adopt(self, served: Served) -> None:
        """Sample what is requested from now on from these weights."""
        self._served = served
        for lane in self._lanes.values():
            served.tell(lane.engine)

    def close(self) -> None:
        """End the playing."""
        for lane in self._lanes.values():
            lane.close()

    def _lane(self, sampling: SamplingParams, first: bool = False) -> "_Lane":
        key = sampling, first
        if key not in self._lanes:
            setup = self._setup
            engine = VLLMEngine.reaching(setup.access, setup.tokenizer, setup.capacity)
            self._served.tell(engine)
            self._lanes[key] = _Lane(engine, sampling, self._envs, self._over)
        return self._lanes[key]


class _Lane:
    """Plays with one set of sampling settings. A thread puts what ends into `over`."""

    def __init__(
        self,
        engine: VLLMEngine,
        sampling: SamplingParams,
        envs: EnvPool,
        over: "queue.SimpleQueue[Rollout | BaseException]",
    ) -> None:
        self.engine = engine
        self.source = LocalSource(DirectOutputAgent(engine, sampling), envs)
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._over = over
        threading.Thread(target=self._work, name="agentsgym-lane", daemon=True).start()

    def submit(self, requests: Sequence[RolloutRequest]) -> None:
        self.source.submit(requests)
        self._asked.put(True)

    def close(self) -> None:
        self._asked.put(False)
        self.source.close()
        self.engine.close()

    def _work(self) -> None:
        try:
            while self._asked.get():
                while rollouts := self.source.poll():
                    for rollout in rollouts:
                        self._over.put(rollout)
        except BaseException as error:  # whatever ends the playing, the learner must be told
            self._over.put(error)


class _SentEnvs(EnvPool):
    """The environments that were sent; no others are made."""

    def __init__(self) -> None:
        super().__init__()
        self._sent: dict[tuple[str, str], MultistepEnv] = {}

    def add(self, parcel: EnvParcel, setup: PlayerSetup) -> None:
        key = parcel.path, config_key(parcel.path, parcel.config)
        if key not in self._sent:
            env = unpack(parcel.payload).with_tokenizer(setup.tokenizer)
            env.set_template_options(setup.template_options)
            self._sent[key] = env

    def of(self, path: str, config: Mapping[str, Any]) -> MultistepEnv:
        return self._sent[path, config_key(path, config)]


def packed_rollout(rollout: Rollout) -> bytes:
    """A finished rollout for the way to its learner, which has the task and the configuration."""
    return zlib.compress(pickle.dumps(replace(rollout, env_config={}, task_data={})), 1)


def unpacked_rollout(
    data: bytes, env_config: Mapping[str, Any], task_data: Mapping[str, Any]
) -> Rollout:
    """The rollout that a worker of this process packed."""
    rollout: Rollout = pickle.loads(zlib.decompress(data))  # noqa: S301 - of a worker of ours
    return replace(rollout, env_config=env_config, task_data=task_data)
