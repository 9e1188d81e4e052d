"""Runs one command, and ends it with all its children once the process that asked for it is gone.

`python -I keeper.py COMMAND ARGUMENT…`. The parent holds the other end of standard input and never
writes to it: when it closes that end, or dies in any way, the command gets SIGTERM, and after
`GRACE` seconds SIGKILL. The command has a process group of its own, so Ctrl-C at the terminal does
not reach it. On Linux, processes that left the group end with it too, and the command ends if the
keeper is killed. Only the standard library is imported.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 8.0
_LOOK = 0.25  # seconds between two looks at the command and the parent
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def keep(command: list[str]) -> int:
    """Run the command; return its exit status."""
    parent = os.getppid()
    prctl = getattr(ctypes.CDLL(None), "prctl", lambda *_: None)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # a daemon becomes a child of this process
    process = subprocess.Popen(  # noqa: S603 - the user's own command
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
    )
    signal.signal(signal.SIGTERM, lambda *_: _end(process))
    stdin = sys.stdin.fileno()
    # Where the kernel tells of the command's end, nobody waits for the next look.
    watched = [stdin, os.pidfd_open(process.pid)] if hasattr(os, "pidfd_open") else [stdin]
    while process.poll() is None and os.getppid() == parent:
        if stdin in select.select(watched, [], [], _LOOK)[0] and not os.read(stdin, 1):
            break
    _end(process)
    return process.wait()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the whole process group, of which what is left after the grace period is killed, and
    the daemons that it made."""
    until = time.monotonic() + GRACE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < until:
            process.poll()
            _daemons(process)
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    while (daemons := _daemons(process)) and time.monotonic() < until + GRACE:
        for pid in daemons:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _daemons(process: "subprocess.Popen[bytes]") -> list[int]:
    """The other children of this process: those that lost their parents, and live."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            pids = [int(pid) for pid in children.read().split() if int(pid) != process.pid]
    except OSError:  # not Linux
        return []
    alive = []
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                alive.append(pid)
    return alive


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]) % 256)
