"""Random numbers per session, for environments that draw from the global generators."""

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_LOCK = threading.RLock()


class GlobalRandomness:
    """A state of `random` and `numpy.random` that belongs to one session.

    Code inside `installed` draws from this state, or seeds it; the states of the program are
    restored afterwards, also after an exception. Only one thread at a time can be inside.
    """

    def __init__(self, seed: int) -> None:
        self._python: Any = random.Random(seed).getstate()
        self._numpy: Any = np.random.RandomState(seed % 2**32).get_state()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make this state the global one inside the block."""
        with _LOCK:
            outside = random.getstate(), np.random.get_state()
            random.setstate(self._python)
            np.random.set_state(self._numpy)
            try:
                yield
            finally:
                self._python, self._numpy = random.getstate(), np.random.get_state()
                random.setstate(outside[0])
                np.random.set_state(outside[1])
