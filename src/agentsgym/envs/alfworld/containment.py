"""Isolates the engine: only one thread runs it at a time, and it leaves the process unchanged.

The engine shares one parser between all games, so it fails with several threads. It overwrites
`sys.argv` permanently and `sys.stdout` while it translates, importing `alfworld` sets
`ALFWORLD_DATA`, and it runs expressions in a game file as Python. All calls into it go through
`contained`, which also installs our evaluator and the speed patch for the duration of the call.
Other users of `textworld` in this process see the unchanged engine.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from agentsgym.envs.alfworld.safety import SafeExpressions
from agentsgym.envs.alfworld.speed import SpeedPatch

_LOCK = threading.RLock()
_DEPTH = 0


@cache
def _patch() -> SpeedPatch:
    return SpeedPatch()


@cache
def _safety() -> SafeExpressions:
    return SafeExpressions()


@contextmanager
def contained(*, fast: bool = True) -> Iterator[None]:
    """Hold the engine's lock; restore `sys.argv`, `sys.stdout` and `ALFWORLD_DATA` afterwards.

    With `fast=False` the engine runs without the speed patch, but still with our evaluator.
    """
    global _DEPTH
    with _LOCK:
        argv, stdout, data = sys.argv, sys.stdout, os.environ.get("ALFWORLD_DATA")
        patch = _patch() if fast and _DEPTH == 0 else None
        if patch:
            patch.apply()
        if _DEPTH == 0:
            _safety().apply()
        _DEPTH += 1
        try:
            yield
        finally:
            _DEPTH -= 1
            if patch:
                patch.restore()
            if _DEPTH == 0:
                _safety().restore()
            sys.argv, sys.stdout = argv, stdout
            _restore_data(data)


def _restore_data(value: str | None) -> None:
    if value is None:
        os.environ.pop("ALFWORLD_DATA", None)
    else:
        os.environ["ALFWORLD_DATA"] = value
