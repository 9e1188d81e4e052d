"""Child interpreters with the same modules as this one. They never run its main script and end
when it ends."""

import contextlib
import os
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

_LIFELINES: set[int] = set()
"""Our ends of the pipes that children watch, see `parent_death`."""


def start_python(
    module: str, *arguments: str, pass_fds: Sequence[int] = (), **options: Any
) -> "subprocess.Popen[Any]":
    """Start a process that runs `module` as a script; `options` go to `subprocess.Popen`.

    The working directory is not on its path. It is killed however this process ends.
    """
    watched, held = os.pipe()
    launcher = python_command("agentsgym.envs.parent_death", str(watched), module, *arguments)
    try:
        # Only our own modules and arguments, no shell.
        process = subprocess.Popen(  # noqa: S603
            launcher, pass_fds=(*pass_fds, watched), **options
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


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` as a script; the working directory is not put on the path."""
    return [sys.executable, "-P", "-m", module, *arguments]


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
