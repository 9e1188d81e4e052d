"""An actor of a Ray cluster that plays whole rollouts, with an HTTP engine of its own.

The learner finds each environment's class and makes the environment; an actor gets the object, and
resolves no name of a dataset row. So what rows may name is decided in one place. The noise of a
rollout depends on its request alone, so a request may be played again by any actor.
"""

import pickle
import sys
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dill  # type: ignore[import-untyped]

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.envs.dataset import config_key
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.generation.vllm.weights import Weights
from agentsgym.rollout.ahead import LocalSource
from agentsgym.rollout.processes.serve import unpack
from agentsgym.types import RolloutRequest, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSetup:
    """What an actor needs at its start.

    Args:
        engine: makes its engine, over the learner's servers.
        tokenizer: the learner's tokenizer.
        template_options: extra arguments of the tokenizer's chat template.
        capacity: sessions that it plays at once.
        sampling: the sampling settings of training.
    """

    engine: Callable[..., VLLMEngine]
    tokenizer: Any
    template_options: Mapping[str, Any]
    capacity: int
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class ServedWeights:
    """The learner's weights (None: the servers' own), with a number that grows."""

    number: int
    weights: Weights | None = None


class RolloutActor:
    """The actor's object in the cluster. Its methods run in threads.

    `setup` are the bytes of an `ActorSetup`. Raises EngineUnavailable if no server answers.
    """

    def __init__(self, path: list[str], setup: bytes, served: ServedWeights) -> None:
        sys.path += [entry for entry in path if entry not in sys.path]
        self._setup: ActorSetup = dill.loads(setup)  # noqa: S301 - of the learner
        self._lock = threading.Lock()
        self._served = ServedWeights(-1)
        self._engine = self._setup.engine(self._setup.tokenizer, capacity=self._setup.capacity)
        self.adopt(served)
        self._envs = EnvPool()
        self._known: set[tuple[str, str]] = set()
        agent = DirectOutputAgent(self._engine, self._setup.sampling)
        self._source = LocalSource(agent, self._envs)

    def ready(self) -> None:
        """Return, which says that the actor has started."""

    def play(
        self,
        request: RolloutRequest,
        sampling: SamplingParams,
        first: bool,
        served: ServedWeights,
        packed: bytes,
    ) -> tuple[bytes, float]:
        """The rollout of a request, pickled and compressed, and the seconds so far in which there
        was nothing to play. `first`: it begins before what waits here. `packed` is its environment.
        """
        self.adopt(served)
        self._keep_env(request, packed)
        rollouts = self._source.play([request], sampling, first=first)
        return zlib.compress(pickle.dumps(rollouts[0]), 1), self._source.idle_seconds

    def _keep_env(self, request: RolloutRequest, packed: bytes) -> None:
        path, config = request.env_class_path, request.env_config
        with self._lock:
            key = path, config_key(path, config)
            if key not in self._known:
                tokenizer, options = self._setup.tokenizer, self._setup.template_options
                self._envs.put(path, config, unpack(packed).with_tokenizer(tokenizer, options))
                self._known.add(key)

    def adopt(self, served: ServedWeights) -> None:
        """Sample what is requested from now on from these weights, unless newer ones are known."""
        with self._lock:
            if served.number > self._served.number:
                self._served = served
                if served.weights is not None:
                    self._engine.adopt(served.weights)
