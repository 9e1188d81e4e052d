"""Child interpreters with the modules of this one. They never run its main script, and end when
it ends, even while they are busy in C code.

The parent holds one end of a pipe, the lifeline, and never writes to it. When the parent dies, the
kernel closes that end. On Linux the kernel then kills the child at once; elsewhere a thread of the
child notices, unless C code holds the interpreter's lock. (`PR_SET_PDEATHSIG` would also kill the
child when only the *thread* that started it ends.)

`python -P -m agentsgym.child_process FD MODULE ARGUMENT…` runs a module in this way.
"""

import contextlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

_LIFELINES: set[int] = set()
"""Our ends of the pipes that children watch."""


def start_python(
    module: str, *arguments: str, pass_fds: Sequence[int] = (), **options: Any
) -> "subprocess.Popen[Any]":
    """Start a process that runs `module` as a script; `options` go to `subprocess.Popen`.

    The working directory is not on its path. It is killed however this process ends.
    """
    watched, held = os.pipe()
    launcher = [sys.executable, "-P", "-m", "agentsgym.child_process", str(watched), module]
    try:
        # Only our own modules and arguments, no shell.
        process = subprocess.Popen(  # noqa: S603
            [*launcher, *arguments], pass_fds=(*pass_fds, watched), **options
        )
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(watched)
    _LIFELINES.add(held)
    weakref.finalize(process, _let_go, held)
    return process


def run_python(
    module: str,
    *,
    input: str,
    env: Mapping[str, str],
    cwd: str | None = None,
    timeout: float | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run `module` to its end with a text as standard input; it is killed if this process ends.

    Raises `subprocess.TimeoutExpired`.
    """
    with start_python(
        module,
        env=env,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until the last is found, so none comes twice."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def python_environment() -> dict[str, str]:
    """This process's environment variables, the module path, and one thread for numeric code."""
    return {**os.environ, **bare_environment()}


def bare_environment() -> dict[str, str]:
    """Only the module path and one thread for numeric code; no variables of this process."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _let_go(held: int) -> None:
    if held in _LIFELINES:
        _LIFELINES.discard(held)
        with contextlib.suppress(OSError):
            os.close(held)


def _let_all_go() -> None:
    """Close all lifelines in a fork of this process, which must not keep the children alive."""
    for held in tuple(_LIFELINES):
        _let_go(held)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_all_go)


# -- in the child -------------------------------------------------------------------------------


def end_with_parent(lifeline: int) -> None:
    """Kill this process as soon as the other end of the pipe `lifeline` is closed."""
    import fcntl  # not on every platform

    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
        poll = select.poll()
        poll.register(lifeline, select.POLLIN)
        if poll.poll(0):  # closed before this process listened
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        threading.Thread(target=_wait, args=(lifeline,), daemon=True).start()


def _wait(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the module named on the command line; it sees only its own arguments."""
    _, lifeline, module, *arguments = sys.argv
    end_with_parent(int(lifeline))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
