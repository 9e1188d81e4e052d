"""Ends a child process when its parent dies, even while the child is busy in C code.

The parent holds one end of a pipe, the lifeline, and never writes to it. When the parent dies, the
kernel closes that end. On Linux the kernel then kills the child at once; elsewhere a thread of the
child notices, unless C code holds the interpreter's lock. (`PR_SET_PDEATHSIG` would also kill the
child when only the *thread* that started it ends.)

`python -P -m agentsgym.envs.parent_death FD MODULE ARGUMENT…` runs a module in this way;
`python_process.start_python` builds that command.
"""

import fcntl
import os
import runpy
import select
import signal
import sys
import threading


def end_with_parent(lifeline: int) -> None:
    """Kill this process as soon as the other end of the pipe `lifeline` is closed."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
        if _is_closed(lifeline):  # closed before this process listened
            _end()
    else:
        threading.Thread(target=_wait, args=(lifeline,), daemon=True).start()


def _is_closed(lifeline: int) -> bool:
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    return bool(poll.poll(0))


def _wait(lifeline: int) -> None:
    os.read(lifeline, 1)
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the module named on the command line; it sees only its own arguments."""
    _, lifeline, module, *arguments = sys.argv
    end_with_parent(int(lifeline))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
