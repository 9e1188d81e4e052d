"""A request to stop training, from Ctrl-C or from a callback."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Note = Callable[[str], None]


class StopRequest:
    """A request to stop, which training obeys at the end of the generation."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def ask(self, reason: str) -> None:
        """Request a stop; the first reason is kept."""
        self.reason = self.reason or reason


@contextmanager
def ctrl_c_asks(request: StopRequest, note: Note) -> Iterator[None]:
    """Inside the block, the first Ctrl-C (or SIGTERM) requests a stop and the second interrupts.

    Has no effect outside the main thread, because Python handles signals only there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: Any) -> None:
        if request.reason is not None:
            raise KeyboardInterrupt
        request.ask("interrupted")
        note("stopping after this step; press Ctrl-C again to abort at once")

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
