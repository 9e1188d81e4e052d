"""The global random generators, lent to one session at a time."""

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_LOCK = threading.RLock()


class GlobalRandomness:
    """A state of `random` and, with `numpy`, of `numpy.random` that belongs to one session.

    Code inside `installed` draws from this state, or seeds it; the states of the program are
    restored afterwards, also after an exception. Only one thread at a time can be inside; one that
    uses the global generators without a state of its own is not blocked.
    """

    def __init__(self, seed: int, *, numpy: bool = True) -> None:
        self._python: Any = random.Random(seed).getstate()
        self._numpy: Any = np.random.RandomState(seed % 2**32).get_state() if numpy else None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make this state the global one inside the block."""
        with _LOCK:
            outside = random.getstate(), self._numpy and np.random.get_state()
            self._exchange(self._python, self._numpy)
            try:
                yield
            finally:
                self._python = random.getstate()
                self._numpy = self._numpy and np.random.get_state()
                self._exchange(*outside)

    def _exchange(self, python: Any, numpy: Any) -> None:
        random.setstate(python)
        if numpy is not None:
            np.random.set_state(numpy)
