"""A session's own random numbers, for games that draw from Python's global generator."""

import contextlib
import io
import random
import threading
from collections.abc import Iterator
from typing import Any

_LOCK = threading.RLock()


class RandomStream:
    """A state of Python's global generator that belongs to one session.

    TextArena's games seed and use the module `random` itself. Whatever runs inside `installed`
    draws from this stream, and the global state is as before afterwards, also when it raises.
    Streams exclude each other across threads; they cannot keep out a thread that uses the
    global generator without one.
    """

    def __init__(self, seed: int) -> None:
        self._state: Any = random.Random(seed).getstate()

    def copy(self) -> "RandomStream":
        """A stream that goes on from here on its own."""
        twin = RandomStream(0)
        twin._state = self._state
        return twin

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make this stream the global generator for a while."""
        with _LOCK:
            outside = random.getstate()
            random.setstate(self._state)
            try:
                yield
            finally:
                self._state = random.getstate()
                random.setstate(outside)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Swallow what is printed, one thread at a time."""
    with _LOCK, contextlib.redirect_stdout(io.StringIO()):
        yield
