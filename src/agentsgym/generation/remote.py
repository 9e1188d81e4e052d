"""The base class of remote engines: requests as coroutines in a thread.

The invariant: every submitted request gives exactly one result, unless its session is released; an
error becomes a result too. A late answer to a released request is dropped.
"""

import hashlib
import queue
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from agentsgym.generation.loop_thread import LoopThread
from agentsgym.types import GenerationRequest, GenerationResult
from agentsgym.types.protocols import check_submitted


class RemoteEngine:
    """An `agentsgym.types.Engine` (without its tokenizer) whose requests are coroutines.

    Subclasses implement `_answer`. All requests run at once; `capacity` only tells a scheduler how
    many to keep open. Use it from one thread at a time.
    """

    def __init__(self, name: str, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._loop = LoopThread(name)
        self._open: dict[str, Future[GenerationResult]] = {}
        self._done: queue.SimpleQueue[Future[GenerationResult]] = queue.SimpleQueue()
        self._ready: list[GenerationResult] = []

    async def _answer(self, request: GenerationRequest) -> GenerationResult:
        raise NotImplementedError

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Send requests. Raises ValueError, and sends none, if a session already has one open."""
        check_submitted(requests, self._open)
        for request in requests:
            # The context is a live view of the caller's data; a sent request must not change.
            fixed = replace(
                request, token_ids=tuple(request.token_ids), messages=tuple(request.messages)
            )
            future = self._loop.start(self._result(fixed))
            self._open[request.session_id] = future
            future.add_done_callback(self._done.put)

    def poll(self) -> list[GenerationResult]:
        """The results that are ready; at least one if any request is open. Raises LoopDied."""
        while (self._open and not self._ready) or not self._done.empty():
            self._receive(self._done.get())
        results, self._ready = self._ready, []
        return results

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        gone = set(session_ids)
        self._ready = [result for result in self._ready if result.session_id not in gone]
        for session_id in gone:
            future = self._open.pop(session_id, None)
            if future is not None:
                future.cancel()

    def close(self) -> None:
        """Cancel all requests and close the connections; the engine cannot be used afterwards."""
        self.release(list(self._open))
        self._loop.close()

    async def _result(self, request: GenerationRequest) -> GenerationResult:
        try:
            return await self._answer(request)
        except Exception as error:  # a bug must end one session, not all
            text = f"session {request.session_id!r}: {type(error).__name__}: {error}"
            return GenerationResult(request.session_id, finish_reason="error", error=text)

    def _receive(self, future: Future[GenerationResult]) -> None:
        if future.cancelled():
            self._loop.check()  # a loop that dies cancels all that runs in it
            return
        result = future.result()
        if self._open.get(result.session_id) is future:
            del self._open[result.session_id]
            self._ready.append(result)


def request_seed(seed: int, sampled_before: int) -> int:
    """The seed of one request, 63 bits: blake2b of the session's seed and the number of tokens it
    has sampled, so that each action of a session has new noise."""
    digest = hashlib.blake2b(f"{seed}/{sampled_before}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
