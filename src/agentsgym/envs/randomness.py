"""The global random generators, lent to one session at a time."""

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_LOCK = threading.RLock()


class GlobalRandomness:
    """A state of `random` and of `numpy.random` that belongs to one session.

    Code inside `installed` draws from this state, or seeds it; the states of the program are
    restored afterwards, also after an exception. Only one thread at a time can be inside; one that
    uses the global generators without a state of its own is not blocked.
    """

    def __init__(self, seed: int) -> None:
        numpy: Any = np.random.RandomState(seed % 2**32).get_state()
        self._states: tuple[Any, Any] = random.Random(seed).getstate(), numpy

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make this state the global one inside the block."""
        with _LOCK:
            outside = _states()
            _install(self._states)
            try:
                yield
            finally:
                self._states = _states()
                _install(outside)


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _install(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
