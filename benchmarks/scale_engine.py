"""An engine that answers after a drawn latency, and measures how busy it was kept."""

import heapq
import time
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import scale_game as game

from agentsgym.types import EngineStats, GenerationRequest, GenerationResult


class Window:
    """How many of an engine's places were busy, while all could be: from the moment at which
    `capacity` sessions had begun to the one at which the last of `sessions` began."""

    def __init__(self, capacity: int, sessions: int) -> None:
        self.capacity, self.sessions = capacity, sessions
        self._begun = 0
        self._opened = self._closed = 0.0
        self._begins, self._ends = array("d"), array("d")

    def request(self, begin: float, end: float, *, first: bool) -> None:
        """A request is in flight from `begin` to `end`; `first` of its session."""
        self._begins.append(begin)
        self._ends.append(end)
        if not first:
            return
        self._begun += 1
        if self._begun == self.capacity:
            self._opened = begin
        if self._begun == self.sessions:
            self._closed = begin

    def occupancy(self) -> float | None:
        """Requests in flight over capacity, the mean over time; None if no session ever waited."""
        seconds = self._closed - self._opened
        if self.sessions <= self.capacity or seconds <= 0:
            return None
        busy = sum(
            max(0.0, min(end, self._closed) - max(begin, self._opened))
            for begin, end in zip(self._begins, self._ends, strict=True)
        )
        return busy / (seconds * self.capacity)


class LatencyEngine:
    """Answers the k-th request of a game with a text and after a time of their own.

    `slower` multiplies the latencies. `own_cpu` is the thread's CPU seconds in these methods, which
    are the engine's and not the library's.
    """

    def __init__(
        self, tokenizer: Any, capacity: int, sessions: int = 0, *, slower: float = 1.0
    ) -> None:
        self.tokenizer, self.capacity, self.slower = tokenizer, capacity, slower
        self.window = Window(capacity, sessions)
        self.own_cpu = 0.0
        self._open: list[tuple[float, int, int, str]] = []
        self._asked = 0
        self._answers = answers_of(tokenizer)

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Draw an answer and a latency for each request."""
        begin, now = time.thread_time(), time.perf_counter()
        for request in requests:
            draw = self.draw_of(request)
            due = now + self.slower * game.latency(draw)
            self._asked += 1
            heapq.heappush(self._open, (due, self._asked, draw, request.session_id))
            self.window.request(now, due, first=len(request.messages) < 2)
        self.own_cpu += time.thread_time() - begin

    def draw_of(self, request: GenerationRequest) -> int:
        """What decides the answer and the latency of a request."""
        return game.drawn("request", request.group, len(request.messages) // 2)

    def poll(self) -> list[GenerationResult]:
        """Sleep until the next answer is due; return all that are."""
        begin, results = time.thread_time(), []
        if self._open:
            time.sleep(max(0.0, self._open[0][0] - time.perf_counter()))
            now = time.perf_counter()
            while self._open and self._open[0][0] <= now:
                results.append(self._answer(*heapq.heappop(self._open)[2:]))
        self.own_cpu += time.thread_time() - begin
        return results

    def _answer(self, draw: int, session_id: str) -> GenerationResult:
        """New integers and floats, as a real engine's: their memory counts."""
        text, ids = self._answers[game.text_number(draw)]
        first = -1.0 - draw % 1000 / 1000
        logprobs = tuple([first - k for k in range(len(ids))])
        return GenerationResult(session_id, tuple(array("i", ids)), logprobs, text)

    def cancel(self, session_ids: Sequence[str]) -> None:
        """Sessions of this game end by themselves."""

    def release(self, session_ids: Sequence[str]) -> None:
        """There is no cache to drop."""

    @property
    def stats(self) -> EngineStats:
        """Nothing is counted here."""
        return EngineStats()


@cache
def answers_of(tokenizer: Any) -> list[tuple[str, list[int]]]:
    """Each answer as text and ids."""
    texts = [game.text_of(number) for number in range(game.TEXTS)]
    end = tokenizer.eos_token_id
    return [(text, [*tokenizer.encode(text, add_special_tokens=False), end]) for text in texts]
