"""Only one writer per run directory. Reading a run needs no lock."""

import itertools
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from agentsgym.envs import ConfigError
from agentsgym.runs.files import RunDirectory

_FILE = ".lock"


class RunInUse(ConfigError):
    """Another process writes to the run directory; the message names it."""


def lock_directory(directory: Path) -> BaseFileLock:
    """The right to write to a directory, until its `release` or the end of this process. The
    directory is made if it does not exist.

    Raises RunInUse if another process, or this one, has the lock already; OSError if the directory
    cannot be written, or its lock is a link.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _FILE
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RunInUse(
            f"{directory} is being written {_holder(path)}; wait until it has ended, stop it, or "
            "choose another directory"
        ) from None
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%F %T")}
    with suppress(OSError):  # Windows refuses it; the text is only for messages
        path.write_text(json.dumps(who))
    return lock


def _holder(path: Path) -> str:
    """The lock's holder, according to the file."""
    try:
        who = json.loads(path.read_text()[:1000])
        return f"by process {int(who['pid'])} on {who['host']} since {who['since']}"
    except (ValueError, TypeError, KeyError, OSError):
        return "by another process"


def claim(
    directory: Path, *, resume: bool, set_aside: bool, note: Callable[[str], None]
) -> BaseFileLock:
    """The lock of a directory that contains a run to resume, or nothing.

    An earlier run is renamed if `set_aside` says so; otherwise, and for a directory of other files,
    ConfigError is raised.
    """
    run = RunDirectory(directory)
    others = directory.iterdir() if directory.is_dir() and not run.is_run() else ()
    if any(path.name != _FILE for path in others):
        raise ConfigError(f"{directory} is not empty and holds no run; name another output_dir")
    lock = lock_directory(directory)
    if resume:
        return lock
    if run.is_run():
        try:
            if not set_aside:
                raise ConfigError(
                    f"{directory} already contains a run; resume it or choose another"
                )
            names = (directory.with_name(f"{directory.name}.{n}") for n in itertools.count(1))
            kept = next(name for name in names if not name.exists())
            directory.rename(kept)
        finally:
            lock.release()
        note(f"The earlier run is now {kept}.")
        lock = lock_directory(directory)
    return lock
