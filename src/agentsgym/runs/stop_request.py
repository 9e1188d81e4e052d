"""A request to stop training, by Ctrl-C or by what else asks for it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Note = Callable[[str], None]


class StopRequest:
    """A request to stop, which training follows at the end of the generation."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def ask(self, reason: str) -> None:
        """Ask for a stop; the first reason stays."""
        self.reason = self.reason or reason


@contextmanager
def ctrl_c_asks(request: StopRequest, note: Note) -> Iterator[None]:
    """Within, the first Ctrl-C (or SIGTERM) asks for a stop and the second one interrupts.

    Without effect outside the main thread, where Python handles no signals.
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
