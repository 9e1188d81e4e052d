"""The base class of engines over HTTP: requests as coroutines in a thread.

The invariant: every submitted request gives exactly one result, unless its session is released; an
error becomes a result too. A late answer to a released request is dropped.
"""

import asyncio
import queue
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import replace
from typing import TypeVar

from agentsgym.generation.http import JsonClient, Retries, Unreachable
from agentsgym.generation.loop_thread import LoopThread
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult
from agentsgym.types.protocols import check_submitted

T = TypeVar("T")
_WATCH_SECONDS = 0.05
_LONGEST_WAIT = 60.0  # the longest Retry-After, in seconds, that is obeyed


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
        self._open: dict[str, Future[GenerationResult]] = {}
        self._done: queue.SimpleQueue[Future[GenerationResult] | None] = queue.SimpleQueue()
        self._ready: list[GenerationResult] = []

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
        for request in requests:
            # The context is a live view of the caller's data; a sent request must not change.
            messages = tuple(request.messages)
            fixed = replace(request, token_ids=copy(request.token_ids), messages=messages)
            future = self._loop.start(self._result(fixed))
            self._open[request.session_id] = future
            future.add_done_callback(self._done.put)

    def poll(self) -> list[GenerationResult]:
        """The results that are ready; at least one if any request is open, unless another thread
        calls `interrupt`. Raises LoopDied."""
        waits = bool(self._open)
        while (waits and self._open and not self._ready) or not self._done.empty():
            try:
                future = self._done.get(timeout=_WATCH_SECONDS)
            except queue.Empty:
                self._loop.check()
                continue
            if future is None:
                waits = False
            else:
                self._receive(future)
        results, self._ready = self._ready, []
        return results

    def interrupt(self) -> None:
        """End the wait of `poll`, or of the next one; for other threads."""
        self._done.put(None)

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        gone = set(session_ids)
        self._ready = [result for result in self._ready if result.session_id not in gone]
        for session_id in gone & self._open.keys():
            future = self._open.pop(session_id)
            if self._loop.alive:
                future.cancel()

    def close(self) -> None:
        """Cancel all requests and close the connections; the engine cannot be used afterwards."""
        self.release(list(self._open))
        self._loop.close()

    def _receive(self, future: Future[GenerationResult]) -> None:
        if future.cancelled() or future.exception():  # released, or the loop has ended
            return
        result = future.result()
        if self._open.get(result.session_id) is future:
            del self._open[result.session_id]
            self._ready.append(result)

    async def _result(self, request: GenerationRequest) -> GenerationResult:
        try:
            return await self._answer(request)
        except Exception as error:  # a bug must end one session, not all
            text = f"session {request.session_id!r}: {type(error).__name__}: {error}"
            return GenerationResult(request.session_id, finish_reason="error", error=text)
