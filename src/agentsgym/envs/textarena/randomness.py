"""Random numbers per session, for games that use Python's global generator."""

import contextlib
import io
import random
import threading
from collections.abc import Iterator
from typing import Any

_LOCK = threading.RLock()


class RandomStream:
    """A state of Python's global generator that belongs to one session.

    TextArena's games seed and use the module `random` itself. Code inside `installed` draws from
    this stream; the global state is restored afterwards, also after an exception. Only one thread
    at a time can be inside `installed`; a thread that uses the global generator without a stream
    is not blocked.
    """

    def __init__(self, seed: int) -> None:
        self._state: Any = random.Random(seed).getstate()

    def copy(self) -> "RandomStream":
        """An independent stream that continues from the current state."""
        twin = RandomStream(0)
        twin._state = self._state
        return twin

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make this stream the global generator inside the block."""
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
    """Discard printed output, one thread at a time."""
    with _LOCK, contextlib.redirect_stdout(io.StringIO()):
        yield
