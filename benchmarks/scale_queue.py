"""An engine with a fixed number of places, as a real one has: other requests wait in a queue.

vLLM samples at most `max_num_seqs` requests at once: by default 256, and 1,024 on GPUs of 70 GiB
and more that are no A100 (`default_max_num_seqs` in vllm/engine/arg_utils.py, vLLM 0.31).
"""

import heapq
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import scale_game as game
from scale_engine import LatencyEngine

from agentsgym.types import GenerationRequest

PLACES = 256


class Taken:
    """How long `places` were taken, from the moment at which all were for the first time to the one
    at which the last of `sessions` began: sessions waited all this time."""

    def __init__(self, places: int, sessions: int) -> None:
        self.places, self._left = places, sessions
        self._busy, self._since = 0, 0.0
        self._open = False
        self.seconds = self._all = self._sum = 0.0

    def session(self, now: float) -> None:
        """A session makes its first request."""
        self._left -= 1
        if not self._left:
            self._pass(now)
            self._open = False

    def change(self, now: float, by: int) -> None:
        """A request took a place, or left one."""
        self._pass(now)
        self._busy += by
        if self._busy == self.places and self._left and not self._open:
            self._open, self._since = True, now

    def _pass(self, now: float) -> None:
        if self._open:
            passed, self._since = now - self._since, now
            self.seconds += passed
            self._sum += passed * self._busy
            self._all += passed * (self._busy == self.places)

    def shares(self) -> tuple[float, float] | None:
        """Share of the time in which all places were taken, and the mean share of places that were;
        None if no session waited while all were."""
        if self.seconds <= 0:
            return None
        return self._all / self.seconds, self._sum / self.seconds / self.places


class QueueEngine(LatencyEngine):
    """A `LatencyEngine` that answers `places` requests at a time, in the order in which they came.
    It goes on by itself while nobody asks it, as a server does."""

    def __init__(self, tokenizer: Any, capacity: int, sessions: int, places: int) -> None:
        super().__init__(tokenizer, capacity, sessions)
        self.taken = Taken(places, sessions)
        self._queue: deque[tuple[int, str]] = deque()
        self._done: list[tuple[int, str]] = []

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Take a place for each request, or queue it."""
        begin, now = time.thread_time(), time.perf_counter()
        self._advance(now)
        for request in requests:
            if len(request.messages) < 2:
                self.taken.session(now)
            self._queue.append((self.draw_of(request), request.session_id))
            self._begin(now)
        self.own_cpu += time.thread_time() - begin

    def poll(self) -> list[Any]:
        """Sleep until an answer is due; return all that are."""
        begin = time.thread_time()
        if not self._done and self._open:
            time.sleep(max(0.0, self._open[0][0] - time.perf_counter()))
        self._advance(time.perf_counter())
        done, self._done = self._done, []
        results = [self._answer(draw, session_id) for draw, session_id in done]
        self.own_cpu += time.thread_time() - begin
        return results

    def _advance(self, now: float) -> None:
        """What happened up to `now`: who left, and who took the place."""
        while self._open and self._open[0][0] <= now:
            due, _, draw, session_id = heapq.heappop(self._open)
            self._done.append((draw, session_id))
            self.taken.change(due, -1)
            self._begin(due)

    def _begin(self, now: float) -> None:
        if self._queue and len(self._open) < self.taken.places:
            draw, session_id = self._queue.popleft()
            self._asked += 1
            due = now + game.latency(draw)
            heapq.heappush(self._open, (due, self._asked, draw, session_id))
            self.taken.change(now, 1)
