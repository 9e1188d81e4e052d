"""Threads for the sessions of blocking environments. They never prevent the program from ending.

The interpreter joins an executor of the standard library at its end, however long its threads
block. These threads are different: `close` only waits a moment for them, and a thread that waits
for a worker finds out (`check_abandoned`) that its result is no longer needed.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

JOIN_SECONDS = 1.0
"""Seconds that `close` waits for a pool's threads."""

_HERE = threading.local()


class Abandoned(RuntimeError):
    """The caller of this thread no longer waits for it."""


def check_abandoned() -> None:
    """Raise Abandoned in a thread whose pool was abandoned."""
    abandonment: threading.Event | None = getattr(_HERE, "abandonment", None)
    if abandonment is not None and abandonment.is_set():
        raise Abandoned("the run that this session belongs to has ended")


class Threads:
    """Threads that run calls; one starts when it is needed."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], Any] | None] = (
            queue.SimpleQueue()
        )
        self._abandonment = threading.Event()
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

    def close(self, *, abandon: bool) -> None:
        """End idle threads; with `abandon` also threads that wait for a worker."""
        if abandon:
            self._abandonment.set()
        for _ in self._threads:
            self._calls.put(None)
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        _HERE.abandonment = self._abandonment
        while (item := self._calls.get()) is not None:
            if not self._abandonment.is_set():
                _carry_out(*item)
            del item  # an idle thread must not keep a session alive


def _carry_out(future: "Future[Any]", call: Callable[..., Any], arguments: Any) -> None:
    try:
        result = call(*arguments)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
