"""A rollout source in this process: a thread around one scheduler.

The thread is the only one that submits to the engine and polls it. It is a daemon, so nothing waits
for it at the end of the program, whatever hangs.
"""

import logging
import threading
import time
from collections.abc import Sequence

from agentsgym.envs import EnvPool
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.processes.env import hosted
from agentsgym.rollout.scheduler import Assignment, Scheduler
from agentsgym.types import (
    EngineAgent,
    Rollout,
    RolloutRequest,
    SamplingParams,
    WeightUpdate,
    trainable,
)

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 1.5
"""Seconds that `close` waits for the thread."""


class LocalSource:
    """A `RolloutSource` that plays with `agent` in the environments of `envs`.

    Nothing else may use the engine of the agent before `close`.
    """

    def __init__(self, agent: EngineAgent, envs: EnvPool) -> None:
        self._agent = agent
        self._envs = envs
        self._hosts: dict[int, tuple[MultistepEnv, MultistepEnv]] = {}
        self._scheduler = Scheduler(agent)
        # All that follows is shared with the thread and guarded by `_changed`.
        self._changed = threading.Condition()
        self._submitted: list[tuple[list[Assignment], bool]] = []
        self._over: dict[str, Rollout] = {}
        self._open = 0
        self._idle = 0.0
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="agentsgym-rollouts", daemon=True)
        self._thread.start()

    def submit(
        self,
        requests: Sequence[RolloutRequest],
        sampling: SamplingParams | None = None,
        *,
        first: bool = False,
    ) -> None:
        """Play these too. Raises UnknownEnvironment or ConfigError if an environment cannot be
        made, and RuntimeError after `close`."""
        assignments = [Assignment(self._host(request), request, sampling) for request in requests]
        with self._changed:
            self._check()
            self._submitted.append((assignments, first))
            self._open += len(assignments)
            self._changed.notify_all()
        self._scheduler.wake()

    def poll(self, timeout: float | None = None) -> list[Rollout]:
        with self._changed:
            self._changed.wait_for(lambda: self._over or not self._open or self._ended, timeout)
            if self._open and not self._over:
                self._check()
            over, self._over = self._over, {}
            return list(over.values())

    def play(
        self,
        requests: Sequence[RolloutRequest],
        sampling: SamplingParams,
        *,
        first: bool = True,
    ) -> list[Rollout]:
        """As in `RolloutSource`, but after what waits if not `first`."""
        names = [request.session_id for request in requests]
        self.submit(requests, sampling, first=first)
        with self._changed:
            self._changed.wait_for(lambda: self._over.keys() >= {*names} or self._ended)
            if not self._over.keys() >= {*names}:
                self._check()
            return [self._over.pop(name) for name in names]

    def use_weights(self, update: WeightUpdate) -> None:
        """Sample all further actions from these weights.

        Raises the errors of the engine. It gets them also if the playing has ended with an error:
        the engines of several ranks may communicate here."""
        trainable(self._agent.engine).update_weights(update)

    @property
    def idle_seconds(self) -> float:
        return self._idle

    def close(self) -> None:
        """End the playing and drop what is open. A thread in which an environment hangs, or which
        waits for an action, is left behind; see `wait_for_thread`."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._scheduler.wake()
        self._thread.join(CLOSE_SECONDS)

    def wait_for_thread(self) -> None:
        """After `close`: wait until the thread has left the engine, which others may use then."""
        if self._thread.is_alive():
            logger.warning("the engine or an environment is still at work on the last step")
            self._thread.join()

    def _host(self, request: RolloutRequest) -> MultistepEnv:
        env = self._envs.of(request.env_class_path, request.env_config)
        if id(env) not in self._hosts:
            self._hosts[id(env)] = env, hosted(env)  # with `env`, so that its id stays its own
        return self._hosts[id(env)][1]

    @property
    def _ended(self) -> bool:
        return self._closed or self._error is not None

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise RuntimeError("the rollout source is closed")

    # -- in the thread --------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._has_work():
                self._hand_over(self._scheduler.advance())
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._scheduler.close()

    def _has_work(self) -> bool:
        """Take what was submitted, and wait where there is nothing to do; False at the end."""
        with self._changed:
            while not self._ended:
                submitted, self._submitted = self._submitted, []
                for assignments, first in submitted:
                    self._scheduler.add(assignments, first=first)
                if self._scheduler.can_advance:
                    return True
                started = time.perf_counter()
                self._changed.wait()
                self._idle += time.perf_counter() - started
            return False

    def _hand_over(self, rollouts: Sequence[Rollout]) -> None:
        if rollouts:
            with self._changed:
                self._over |= {rollout.session_id: rollout for rollout in rollouts}
                self._open -= len(rollouts)
                self._changed.notify_all()
