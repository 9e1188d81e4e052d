"""Many sessions at once over one engine, without lock-step.

Up to `engine.capacity` trials are open; one that ends makes room for the next at once. Whatever
the engine has finished goes straight back into its generator, and the generator's next request
straight back to the engine, so no session waits for another. A trial of a blocking environment
advances in a thread.
"""

import contextlib
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from agentsgym.rollout.drive import GenerationError, to_action, to_generation
from agentsgym.rollout.threads import Threads
from agentsgym.rollout.trial import Trial
from agentsgym.types import Action, ActionRequest, EngineAgent, GenerationResult, Rollout

BLOCKING_THREADS = 32


@dataclass(frozen=True, slots=True)
class Job:
    """A trial to play; `group` lets the engine share the prompt, `blocking` puts it in a thread."""

    session_id: str
    trial: Trial
    group: int
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class _Open:
    job: Job
    generator: Generator[ActionRequest, Action, Rollout]


_Outcome = ActionRequest | Rollout


class Scheduler:
    """Plays jobs with an engine-backed agent."""

    def __init__(self, agent: EngineAgent) -> None:
        self._agent = agent
        self._engine = agent.engine
        self._open: dict[str, _Open] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._in_flight = 0
        self._stepping: dict[Future[_Outcome], str] = {}
        self._threads: Threads | None = None

    def play(self, jobs: Sequence[Job]) -> list[Rollout]:
        """Play all jobs and return their rollouts in the order of the jobs."""
        waiting = deque(jobs)
        try:
            while waiting or self._open:
                self._start(waiting)
                self._collect_threads()
                if self._in_flight:
                    self._receive(self._engine.poll())
        finally:
            self._close()
        return [self._rollouts[job.session_id] for job in jobs]

    def _start(self, waiting: deque[Job]) -> None:
        requests = []
        while waiting and len(self._open) < self._engine.capacity:
            job = waiting.popleft()
            self._open[job.session_id] = _Open(job, job.trial.play())
            requests.append(self._advance(job.session_id, None))
        self._submit(requests)

    def _receive(self, results: Sequence[GenerationResult]) -> None:
        self._in_flight -= len(results)
        self._submit([self._advance(result.session_id, result) for result in results])

    def _advance(self, sid: str, result: GenerationResult | None) -> ActionRequest | None:
        """Hand a result to its session; returns the session's next request if it has one now."""
        if self._open[sid].job.blocking:
            self._threads = self._threads or Threads(BLOCKING_THREADS)
            future = self._threads.submit(_step, self._open[sid].generator, result)
            self._stepping[future] = sid
            return None
        return self._settle(sid, _step(self._open[sid].generator, result))

    def _settle(self, sid: str, outcome: _Outcome) -> ActionRequest | None:
        if isinstance(outcome, ActionRequest):
            return outcome
        self._rollouts[sid] = outcome
        del self._open[sid]
        self._engine.release([sid])
        return None

    def _collect_threads(self) -> None:
        if not self._stepping:
            return
        timeout = 0 if self._in_flight else None
        done, _ = wait(self._stepping, timeout=timeout, return_when=FIRST_COMPLETED)
        self._submit([self._settle(self._stepping.pop(f), f.result()) for f in done])

    def _submit(self, requests: Sequence[ActionRequest | None]) -> None:
        generation = [
            to_generation(request, self._agent.sampling, self._open[request.session_id].job.group)
            for request in requests
            if request is not None
        ]
        if generation:
            self._in_flight += len(generation)
            self._engine.submit(generation)

    def _close(self) -> None:
        """Leave nothing behind, also when an exception or Ctrl-C ends the run.

        A thread in which an environment hangs is left to itself: it ends with the program.
        """
        self._engine.release(list(self._open))
        if self._threads is not None:
            self._threads.close(abandon=bool(self._open))
        for session in self._open.values():
            with contextlib.suppress(ValueError):  # it runs in a thread that hangs
                session.generator.close()


def _step(
    generator: Generator[ActionRequest, Action, Rollout], result: GenerationResult | None
) -> _Outcome:
    try:
        if result is None:
            return next(generator)
        try:
            action = to_action(result)
        except GenerationError as error:
            return generator.throw(error)
        return generator.send(action)
    except StopIteration as stop:
        rollout: Rollout = stop.value
        return rollout
