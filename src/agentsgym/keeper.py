"""Runs one command, and ends it with all its children once the process that asked for it is gone.

`python -I keeper.py COMMAND ARGUMENT…`. The parent holds the other end of standard input and never
writes to it: when it closes that end, or dies in any way, the command gets SIGTERM, and after
`GRACE` seconds SIGKILL. The command has a process group of its own, so Ctrl-C at the terminal does
not reach it. Only the standard library is imported.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 8.0
_LOOK = 0.25  # seconds between two looks at the command and the parent


def keep(command: list[str]) -> int:
    """Run the command; return its exit status."""
    parent = os.getppid()
    process = subprocess.Popen(  # noqa: S603 - the user's own command
        command, stdin=subprocess.DEVNULL, start_new_session=True
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
    """End the whole process group; what is left of it after the grace period is killed."""
    until = time.monotonic() + GRACE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < until:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]) % 256)
