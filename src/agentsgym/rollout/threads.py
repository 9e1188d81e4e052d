"""Threads for the sessions of blocking environments. They never prevent the program from ending.

The interpreter joins an executor of the standard library at its end, however long its threads
block. These threads are different: `close` only waits a moment for them.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

JOIN_SECONDS = 1.0
"""Seconds that `close` waits for a pool's threads."""


class Threads:
    """Threads that run calls; one starts when it is needed."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], Any] | None] = (
            queue.SimpleQueue()
        )
        self._closed = False
        self._threads: list[threading.Thread] = []

    def submit(self, most: int, call: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Run a call in one of at most `most` threads; the future gets its result or exception."""
        future: Future[Any] = Future()
        self._calls.put((future, call, arguments))
        if len(self._threads) < most:
            thread = threading.Thread(target=self._serve, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def close(self) -> None:
        """End idle threads and drop calls that wait; one in which a call hangs is left behind."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            if not self._closed:
                _carry_out(*item)
            del item  # an idle thread must not keep a session alive


def _carry_out(future: "Future[Any]", call: Callable[..., Any], arguments: Any) -> None:
    try:
        result = call(*arguments)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
