"""Removes a process's rights before it reads answers: files, network, programs, time, memory."""

import contextlib
import ctypes
import math
import os
import platform
import resource
import signal
import time

from agentsgym.envs.classical_reasoning.landlock import forbid_changes
from agentsgym.envs.classical_reasoning.seccomp import forbid_calls

_LIMITS = {"RLIMIT_AS": 4 * 2**30, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}
_PR_SET_PDEATHSIG = 1


def confine() -> list[str]:
    """Give up all rights permanently; return, in words, what this machine cannot restrict."""
    missing = forbid_changes()
    calls = forbid_calls(processes=False)
    for name, amount in _LIMITS.items():
        _limit(name, amount)
    return [*missing, calls] if calls else missing


def confine_fork(parent: int, seconds: float) -> None:
    """In a fork of a confined process: end with the parent and after `seconds` of CPU time, and
    start, signal or inspect no process (the parent is outside the fork's own Landlock domain)."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
    _limit("RLIMIT_CPU", math.ceil(seconds))
    forbid_changes()
    forbid_calls(processes=True)


def allow_time(seconds: float | None) -> None:
    """End this process after that much more CPU time; None: no limit."""
    used = time.process_time()
    _limit("RLIMIT_CPU", None if seconds is None else math.ceil(used + seconds) + 1)


def _limit(name: str, amount: int | None) -> None:
    """Set the soft limit, which is enforced; the hard limit stays, so it can be raised again."""
    with contextlib.suppress(ValueError, OSError):
        kind = getattr(resource, name)
        highest = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (highest if amount is None else amount, highest))
