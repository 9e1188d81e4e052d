"""The base class of engines over HTTP: requests as coroutines in a thread.

The invariant: every submitted request gives exactly one result, unless its session is released; an
error becomes a result too. A late answer to a released request is dropped.
"""

import asyncio
import queue
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar

from agentsgym.generation.http import JsonClient, Retries, Unreachable
from agentsgym.generation.loop_thread import LoopThread
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult
from agentsgym.types.protocols import check_submitted

T = TypeVar("T")
_WATCH_SECONDS = 0.5
_LONGEST_WAIT = 60.0  # the longest Retry-After, in seconds, that is obeyed
_Answered = tuple[GenerationRequest, GenerationResult]


class RemoteEngine:
    """An `agentsgym.types.Engine` (without its tokenizer) whose requests are coroutines.

    Subclasses implement `_answer`, which asks by `_ask` and counts the tokens `sampled` and `read`
    in `_totals`. All requests run at once; `capacity` only tells a scheduler how many to keep open.
    Use it from one thread at a time. `key` is sent as bearer token, `timeout` are the seconds that
    one request may take, and `retries` the number of attempts and the pauses between them.
    """

    def __init__(
        self, capacity: int, *, key: str | None, timeout: float, retries: Retries | None
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._timeout = timeout
        self._retries = retries or Retries()
        self._totals: Counter[str] = Counter()
        self._http = JsonClient({"Authorization": f"Bearer {key}"} if key else {})
        self._loop = LoopThread("agentsgym-engine")
        self._loop.at_end(self._http.close)
        self._open: dict[str, GenerationRequest] = {}
        self._done: queue.SimpleQueue[list[_Answered]] = queue.SimpleQueue()
        self._ready: list[GenerationResult] = []
        # The rest belongs to the loop's thread.
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answered: list[_Answered] = []

    async def _answer(self, request: GenerationRequest) -> GenerationResult:
        raise NotImplementedError

    async def _ask(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` returns, which is made again after Unreachable, later if the server
        requested it. Raises its last error."""
        self._totals["requests"] += 1
        delays = self._retries.delays()
        while True:
            try:
                return await attempt()
            except Exception as error:
                if not isinstance(error, Unreachable) or (delay := next(delays, None)) is None:
                    self._totals["failures"] += 1
                    raise
                delay = max(delay, min(error.wait or 0.0, _LONGEST_WAIT))
            self._totals["retries"] += 1
            await asyncio.sleep(delay)

    @property
    def stats(self) -> EngineStats:
        """Totals since construction. `read_tokens` counts whole contexts, as the part that a
        server's prefix cache saved is only known there. `extra`: `requests`, `retries`, and
        `failures` of requests."""
        totals = self._totals
        return EngineStats(
            sampled_tokens=totals["sampled"],
            read_tokens=totals["read"],
            extra={name: float(totals[name]) for name in ("requests", "retries", "failures")},
        )

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Send requests. Raises ValueError, and sends none, if a session already has one open, and
        LoopDied."""
        check_submitted(requests, self._open)
        # The context is a live view of the caller's data; a sent request must not change.
        fixed = [
            replace(request, token_ids=copy(request.token_ids), messages=tuple(request.messages))
            for request in requests
        ]
        self._loop.call_soon(self._begin, fixed)
        self._open |= {request.session_id: request for request in fixed}

    def poll(self) -> list[GenerationResult]:
        """The results that are ready; at least one if any request is open. Raises LoopDied."""
        while (self._open and not self._ready) or not self._done.empty():
            try:
                self._receive(self._done.get(timeout=_WATCH_SECONDS))
            except queue.Empty:
                self._loop.check()
        results, self._ready = self._ready, []
        return results

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        gone = set(session_ids)
        self._ready = [result for result in self._ready if result.session_id not in gone]
        cut = [session_id for session_id in gone if self._open.pop(session_id, None)]
        if cut and self._loop.alive:
            self._loop.call_soon(self._cancel, cut)

    def close(self) -> None:
        """Cancel all requests and close the connections; the engine cannot be used afterwards."""
        self.release(list(self._open))
        self._loop.close()

    def _receive(self, answered: Sequence[_Answered]) -> None:
        for request, result in answered:
            if self._open.get(request.session_id) is request:
                del self._open[request.session_id]
                self._ready.append(result)

    # -- in the loop's thread: one wake-up for many requests, and one for many results ------------

    def _begin(self, requests: Sequence[GenerationRequest]) -> None:
        loop = asyncio.get_running_loop()
        for request in requests:
            self._tasks[request.session_id] = loop.create_task(self._run(request))

    def _cancel(self, session_ids: Sequence[str]) -> None:
        for session_id in session_ids:
            if session_id in self._tasks:
                self._tasks.pop(session_id).cancel()

    async def _run(self, request: GenerationRequest) -> None:
        try:
            result = await self._answer(request)
        except Exception as error:  # a bug must end one session, not all
            text = f"session {request.session_id!r}: {type(error).__name__}: {error}"
            result = GenerationResult(request.session_id, finish_reason="error", error=text)
        del self._tasks[request.session_id]  # a cancelled task does not come here
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._answered.append((request, result))

    def _hand_over(self) -> None:
        answered, self._answered = self._answered, []
        self._done.put(answered)
