"""Only one writer per run directory.

The lock is the operating system's, on an open file: it ends with its process, in whatever way that
ends. The file's text is only used in messages. Reading a run needs no lock.
"""

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from agentsgym.envs import ConfigError
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.trust import is_own, remember_own

_FILE = ".lock"
# Errors of a file system without locks; there a run continues without a lock.
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


class RunInUse(ConfigError):
    """Another process writes to the run directory; the message names it."""


class RunLock:
    """The right to write to a run directory, from `acquire` until `release`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    @classmethod
    def acquire(cls, directory: Path) -> "RunLock":
        """Take the lock; create the directory if it does not exist.

        Raises RunInUse if another process, or this one, has it already; OSError if the directory
        cannot be written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / _FILE
        while True:
            file = os.fdopen(_opened(path), "ab+")
            try:
                if not _lock(file):
                    raise RunInUse(f"{directory} is being written {_holder(file)}; {_ADVICE}")
                if _is_at(file, path):
                    _sign(file)
                    _HELD.add(file)
                    return cls(file)
            except BaseException:
                file.close()
                raise
            file.close()  # the directory was moved between opening and locking

    def release(self) -> None:
        """Release the lock."""
        _HELD.discard(self._file)
        self._file.close()


_ADVICE = "wait until it has ended, stop it, or choose another directory"
_HELD: set[BinaryIO] = set()


def _opened(path: Path) -> int:
    """Open a file that is not a link, because the target of a link would be emptied."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0), 0o666)


def _close_in_child() -> None:
    """A forked child process must not keep the lock after its parent's end."""
    for file in _HELD:
        file.close()
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _lock(file: BinaryIO) -> bool:
    """Whether the file could be locked; True if this file system has no locks."""
    try:
        _lock_file(file)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        if error.errno not in _NO_LOCKS:
            raise
    return True


if sys.platform == "win32":

    def _lock_file(file: BinaryIO) -> None:
        import msvcrt

        file.seek(1 << 30)  # far after the text, which other processes must be able to read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:

    def _lock_file(file: BinaryIO) -> None:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sign(file: BinaryIO) -> None:
    """Write the lock's holder into the file."""
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%F %T")}
    file.truncate(0)
    file.write(json.dumps(who).encode())
    file.flush()


def _holder(file: BinaryIO) -> str:
    """The lock's holder, according to the file."""
    file.seek(0)
    try:
        who = json.loads(file.read(1000))
        return f"by process {int(who['pid'])} on {who['host']} since {who['since']}"
    except (ValueError, TypeError, KeyError, OSError):
        return "by another process"


def refuse_several_processes() -> None:
    """Raise ConfigError if a launcher started this process as one of several: each would write the
    run directory."""
    number = os.environ.get("WORLD_SIZE", "1")
    if number != "1":
        raise ConfigError(
            f"a run is one process, and a launcher started {number} (WORLD_SIZE); to train in "
            "several, start examples/several_processes.py instead (docs/distributed.md)"
        )


def claim(
    directory: Path, *, resume: bool, set_aside: bool, note: Callable[[str], None]
) -> RunLock:
    """The lock of a directory that contains a run to resume, or no run.

    An earlier run is renamed if `set_aside` says so; otherwise ConfigError is raised.
    """
    lock = RunLock.acquire(directory)
    if resume:
        return lock
    if not RunDirectory(directory).is_run():
        if any(path.name != _FILE for path in directory.iterdir()):
            lock.release()
            raise ConfigError(f"{directory} is not empty and holds no run; name another output_dir")
        remember_own(directory)
        return lock
    try:
        if not set_aside:
            raise ConfigError(f"{directory} already contains a run; resume it or choose another")
        kept = _free_name(directory)
        ours = is_own(directory)
        directory.rename(kept)
        if ours:
            remember_own(kept)
    finally:
        lock.release()
    note(f"The earlier run is now {kept}.")
    return claim(directory, resume=resume, set_aside=set_aside, note=note)


def _free_name(directory: Path) -> Path:
    number = 1
    while (kept := directory.with_name(f"{directory.name}.{number}")).exists():
        number += 1
    return kept
