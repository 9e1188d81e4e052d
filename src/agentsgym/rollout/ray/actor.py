"""An actor of a Ray cluster that plays whole rollouts, with an HTTP engine of its own.

The learner finds each environment's class and makes the environment; an actor gets the object, and
resolves no name of a dataset row. So what rows may name is decided in one place. The noise of a
rollout depends on its request alone, so a request may be played again by any actor.
"""

import importlib.metadata
import pickle
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.envs.extras import require
from agentsgym.generation.vllm.engine import ServerAccess, VLLMEngine
from agentsgym.generation.vllm.weights import Weights
from agentsgym.rollout.ahead import LocalSource
from agentsgym.rollout.processes.serve import unpack
from agentsgym.types import RolloutRequest, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSetup:
    """What an actor needs at its start.

    Args:
        access: how its engine reaches the servers.
        tokenizer: the learner's tokenizer.
        template_options: extra arguments of the tokenizer's chat template.
        capacity: sessions that it plays at once.
        sampling: the sampling settings of training.
    """

    access: ServerAccess
    tokenizer: Any
    template_options: Mapping[str, Any]
    capacity: int
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class ServedWeights:
    """The learner's weights (None: the servers' own), with a number that grows."""

    number: int
    weights: Weights | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """Requests for an actor, to be played before or after what waits there. `envs` has for each
    environment that they name, under a key of its own, its class path, its `env_config`, and a list
    with a reference to the packed object."""

    requests: Sequence[RolloutRequest]
    sampling: SamplingParams | None
    first: bool
    served: ServedWeights
    envs: Mapping[str, tuple[str, Mapping[str, Any], list[Any]]]


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
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._served = ServedWeights(-1)
        self._engine = VLLMEngine.reaching(
            self._setup.access, self._setup.tokenizer, self._setup.capacity
        )
        self.adopt(served)
        self._envs = EnvPool()
        self._known: set[str] = set()
        agent = DirectOutputAgent(self._engine, self._setup.sampling)
        self._source = LocalSource(agent, self._envs)

    def ready(self) -> None:
        """Return, which says that the actor has started."""

    def submit(self, order: Order) -> None:
        """Play these too. `poll` raises what went wrong."""
        try:
            self.adopt(order.served)
            with self._lock:
                for key, (path, config, packed) in order.envs.items():
                    if key not in self._known:
                        self._envs.put(path, config, self._unpacked(packed[0]))
                        self._known.add(key)
            self._source.submit(order.requests, order.sampling, first=order.first)
        except BaseException as error:  # whatever it is, the learner must know it
            self._error = error

    def _unpacked(self, packed: Any) -> MultistepEnv:
        env = unpack(require("ray", "ray").get(packed))
        return env.with_tokenizer(self._setup.tokenizer, self._setup.template_options)

    def poll(self) -> tuple[bytes, float]:
        """The rollouts that ended since the last call, pickled and compressed; waits for one while
        any is open. And the seconds so far in which there was nothing to play."""
        if self._error is not None:
            raise self._error
        rollouts = self._source.poll()
        return zlib.compress(pickle.dumps(rollouts), 1), self._source.idle_seconds

    def adopt(self, served: ServedWeights) -> None:
        """Sample what is requested from now on from these weights, unless newer ones are known."""
        with self._lock:
            if served.number > self._served.number:
                self._served = served
                if served.weights is not None:
                    self._engine.adopt(served.weights)


def own_version() -> str:
    """The installed version of agentsgym."""
    try:
        return importlib.metadata.version("agentsgym")
    except importlib.metadata.PackageNotFoundError:
        return "from its sources"
