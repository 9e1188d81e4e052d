"""How long a worker had nothing to play."""

import threading
import time


class IdleTime:
    """Counts the seconds in which nothing was open; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._since = time.monotonic()
        self._seconds = 0.0

    def opened(self, rollouts: int) -> None:
        """So many more are open."""
        with self._lock:
            if not self._open:
                self._seconds += time.monotonic() - self._since
            self._open += rollouts

    def closed(self, rollouts: int) -> None:
        """So many are over."""
        with self._lock:
            self._open -= rollouts
            if rollouts and not self._open:
                self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """Idle seconds so far."""
        with self._lock:
            return self._seconds + (0.0 if self._open else time.monotonic() - self._since)
