"""Plays many sessions at once with one engine, without lock-step.

Up to `engine.capacity` trials are open, and of an environment up to `most_sessions`; when one ends,
the next one starts at once. Every result of the engine goes directly to its generator, and the
generator's next request directly back to the engine, so no session waits for another. A trial of a
blocking environment advances in a thread.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import advance
from agentsgym.rollout.session import Session
from agentsgym.rollout.threads import Threads
from agentsgym.rollout.trial import Trial, play_trial
from agentsgym.types import (
    EngineAgent,
    GenerationRequest,
    GenerationResult,
    Rollout,
    RolloutRequest,
)

BLOCKING_THREADS = 32

_Outcome = GenerationRequest | Rollout


class Scheduler:
    """Plays rollouts with an engine-backed agent. `on_rollout` is called with each rollout as soon
    as it is over."""

    def __init__(
        self, agent: EngineAgent, on_rollout: Callable[[Rollout], None] | None = None
    ) -> None:
        self._on_rollout = on_rollout
        self._sampling = agent.sampling
        self._engine = agent.engine
        self._open: dict[str, Trial] = {}
        self._blocking: set[str] = set()
        self._limited: dict[str, MultistepEnv] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._in_flight = 0
        self._stepping: dict[Future[_Outcome], str] = {}
        self._threads: Threads | None = None

    def play(self, asked: Sequence[tuple[MultistepEnv, RolloutRequest]]) -> list[Rollout]:
        """Play each request in its environment and return the rollouts in the same order."""
        waiting = deque(asked)
        try:
            while waiting or self._open:
                self._start(waiting)
                self._collect_threads()
                if self._in_flight:
                    self._receive(self._engine.poll())
        finally:
            self._close()
        return [self._rollouts[request.session_id] for _, request in asked]

    def _start(self, waiting: deque[tuple[MultistepEnv, RolloutRequest]]) -> None:
        requests = []
        while waiting and len(self._open) < self._engine.capacity:
            if self._is_full(waiting[0][0]):
                break
            env, request = waiting.popleft()
            sid = request.session_id
            if env.most_sessions is not None:
                self._limited[sid] = env
            self._open[sid] = play_trial(Session(env, request, self._sampling))
            if env.blocking:
                self._blocking.add(sid)
            requests.append(self._advance(sid, None))
        self._submit(requests)

    def _is_full(self, env: MultistepEnv) -> bool:
        most = env.most_sessions
        return most is not None and sum(e is env for e in self._limited.values()) >= most

    def _receive(self, results: Sequence[GenerationResult]) -> None:
        self._in_flight -= len(results)
        self._submit([self._advance(result.session_id, result) for result in results])

    def _advance(self, sid: str, result: GenerationResult | None) -> GenerationRequest | None:
        """Pass a result to its session; return the session's next request if it already has one."""
        if sid in self._blocking:
            self._threads = self._threads or Threads(BLOCKING_THREADS)
            self._stepping[self._threads.submit(advance, self._open[sid], result)] = sid
            return None
        return self._settle(sid, advance(self._open[sid], result))

    def _settle(self, sid: str, outcome: _Outcome) -> GenerationRequest | None:
        if isinstance(outcome, GenerationRequest):
            return outcome
        self._rollouts[sid] = outcome
        del self._open[sid]
        self._limited.pop(sid, None)
        self._engine.release([sid])
        if self._on_rollout is not None:
            self._on_rollout(outcome)
        return None

    def _collect_threads(self) -> None:
        if not self._stepping:
            return
        timeout = 0 if self._in_flight else None
        done, _ = wait(self._stepping, timeout=timeout, return_when=FIRST_COMPLETED)
        self._submit([self._settle(self._stepping.pop(f), f.result()) for f in done])

    def _submit(self, requests: Sequence[GenerationRequest | None]) -> None:
        asked = [request for request in requests if request is not None]
        if asked:
            self._in_flight += len(asked)
            self._engine.submit(asked)

    def _close(self) -> None:
        """Release everything, also if an exception or Ctrl-C ends the run.

        A thread in which an environment hangs is abandoned: it ends with the program.
        """
        self._engine.release(list(self._open))
        if self._threads is not None:
            self._threads.close(abandon=bool(self._open))
        for trial in self._open.values():
            with contextlib.suppress(ValueError):  # the generator runs in a thread that hangs
                trial.close()
