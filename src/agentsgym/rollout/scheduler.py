"""Plays many sessions at once with one engine, without lock-step.

Up to `engine.capacity` trials are open, and of an environment up to `most_sessions`; when one ends,
the next one starts at once. Every result of the engine goes directly to its generator, and the
generator's next request directly back to the engine, so no session waits for another. A trial of a
blocking environment advances in a thread, whose outcome is an event that ends the engine's wait; a
trial of an environment that plays its episodes itself is played when no other is open. `play` plays
a list to its end; a rollout source adds requests at any time and advances round by round.
"""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import (
    OnRollout,
    advance,
    check_engine,
    play_alone,
    plays_episodes,
)
from agentsgym.rollout.session import Session
from agentsgym.rollout.trial import TrialGenerator, play_trial
from agentsgym.types import (
    EngineAgent,
    GenerationRequest,
    GenerationResult,
    Rollout,
    RolloutRequest,
    SamplingParams,
)
from agentsgym.types.protocols import records_supports

JOIN_SECONDS = 1.0
"""Seconds that `close` waits for threads in which environments are at work."""


class Assignment(NamedTuple):
    """A request and the environment that plays it; `sampling` if not with the agent's settings."""

    env: MultistepEnv
    request: RolloutRequest
    sampling: SamplingParams | None = None


class _Open(NamedTuple):
    """A trial that is being played, and where."""

    env: MultistepEnv
    trial: TrialGenerator


_Outcome = GenerationRequest | Rollout


class Scheduler:
    """Plays rollouts with an engine-backed agent. `on_rollout` is called with each rollout as soon
    as it is over."""

    def __init__(self, agent: EngineAgent, on_rollout: OnRollout | None = None) -> None:
        self._on_rollout = on_rollout
        self._agent = agent
        self._engine = agent.engine
        self._waiting: deque[Assignment] = deque()
        self._alone: deque[Assignment] = deque()
        self._open: dict[str, _Open] = {}
        self._over: list[Rollout] = []
        self._in_flight = 0
        self._stepping: dict[Future[_Outcome], str] = {}
        self._events: queue.SimpleQueue[Future[_Outcome] | None] = queue.SimpleQueue()
        self._interrupt: Callable[[], None] = getattr(self._engine, "interrupt", _no_interrupt)

    def play(self, assignments: Sequence[Assignment]) -> list[Rollout]:
        """Play each request in its environment and return the rollouts in the same order."""
        rollouts: dict[str, Rollout] = {}
        self.add(assignments)
        try:
            while self._waiting or self._open or self._alone:
                rollouts |= {rollout.session_id: rollout for rollout in self.advance()}
        finally:
            self.close()
        return [rollouts[assignment.request.session_id] for assignment in assignments]

    def add(self, assignments: Sequence[Assignment], *, first: bool = False) -> None:
        """Play these too: after those that wait already, or with `first` before them. Raises
        ConfigError if the engine cannot sample what an environment allows."""
        for env in {id(one.env): one.env for one in assignments}.values():
            check_engine(env, self._engine)
        self._alone += [one for one in assignments if plays_episodes(one.env)]
        together = [one for one in assignments if not plays_episodes(one.env)]
        if first:
            self._waiting.extendleft(reversed(together))
        else:
            self._waiting.extend(together)

    def advance(self) -> list[Rollout]:
        """One round: start the trials that there is room for, and pass on the results that are
        ready, waiting for at least one, or for an environment, if any is expected. When no trial
        is open, it plays a whole rollout of an environment that plays its episodes itself and then
        polls the engine alone. Returns the rollouts that ended."""
        self._start()
        self._collect_threads()
        if self._in_flight:
            self._receive(self._engine.poll())
        elif self._alone and not self._open:
            self._play_alone(*self._alone.popleft())
        over, self._over = self._over, []
        return over

    @property
    def can_advance(self) -> bool:
        """Whether a round would do anything."""
        return bool(self._in_flight or self._stepping or self._waiting or self._alone)

    def wake(self) -> None:
        """End the wait of a round; for other threads."""
        self._tell(None)

    def _tell(self, event: Future[_Outcome] | None) -> None:
        self._events.put(event)
        self._interrupt()

    def _start(self) -> None:
        requests = []
        while self._waiting and len(self._open) < self._engine.capacity:
            if self._is_full(self._waiting[0].env):
                break
            env, request, sampling = self._waiting.popleft()
            session = Session(env, request, sampling or self._agent.sampling)
            session.exact = records_supports(self._engine)
            self._open[session.session_id] = _Open(env, play_trial(session))
            requests.append(self._resume(session.session_id, None))
        self._submit(requests)

    def _play_alone(
        self, env: MultistepEnv, request: RolloutRequest, sampling: SamplingParams | None
    ) -> None:
        agent = DirectOutputAgent(self._engine, sampling) if sampling else self._agent
        self._over.append(play_alone(env, request, agent, self._on_rollout))

    def _is_full(self, env: MultistepEnv) -> bool:
        most = env.most_sessions
        return most is not None and sum(one.env is env for one in self._open.values()) >= most

    def _receive(self, results: Sequence[GenerationResult]) -> None:
        self._in_flight -= len(results)
        self._submit([self._resume(result.session_id, result) for result in results])

    def _resume(self, sid: str, result: GenerationResult | None) -> GenerationRequest | None:
        """Pass a result to its session; return the session's next request if it already has one."""
        env, trial = self._open[sid]
        if env.blocking:
            future = _in_thread(partial(advance, trial, result))
            self._stepping[future] = sid
            future.add_done_callback(self._tell)
            return None
        return self._settle(sid, advance(trial, result))

    def _settle(self, sid: str, outcome: _Outcome) -> GenerationRequest | None:
        if isinstance(outcome, GenerationRequest):
            return outcome
        self._over.append(outcome)
        del self._open[sid]
        self._engine.release([sid])
        if self._on_rollout is not None:
            self._on_rollout(outcome)
        return None

    def _collect_threads(self) -> None:
        """Go on with the sessions whose environment answered; wait for one, or for `wake`, if the
        engine has nothing to answer."""
        done = [] if self._in_flight or not self._stepping else [self._events.get()]
        with contextlib.suppress(queue.Empty):
            while True:
                done.append(self._events.get_nowait())
        over = [future for future in done if future is not None]
        self._submit([self._settle(self._stepping.pop(f), f.result()) for f in over])

    def _submit(self, requests: Sequence[GenerationRequest | None]) -> None:
        ready = [request for request in requests if request is not None]
        if ready:
            self._in_flight += len(ready)
            self._engine.submit(ready)

    def close(self) -> None:
        """Release everything, also if an exception or Ctrl-C ends the play.

        A thread in which an environment hangs ends with the program.
        """
        self._engine.release(list(self._open))
        futures.wait(self._stepping, JOIN_SECONDS)
        self._interrupt = _no_interrupt  # by what comes late
        for _, trial in self._open.values():
            with contextlib.suppress(ValueError):  # the generator runs in a thread that hangs
                trial.close()


def _no_interrupt() -> None:
    """For an engine whose wait nothing ends but a result."""


def _in_thread(step: Callable[[], _Outcome]) -> Future[_Outcome]:
    """Take a step in a thread of its own. The interpreter would join those of an executor at its
    end, however long they block; this one never prevents the program from ending."""
    future: Future[_Outcome] = Future()

    def carry_out() -> None:
        try:
            future.set_result(step())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=carry_out, daemon=True).start()
    return future
