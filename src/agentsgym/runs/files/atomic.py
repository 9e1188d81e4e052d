"""Files that are written completely or not at all."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class DamagedFile(ValueError):
    """A stored file cannot be read; the message names the file and the problem."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields the path of a new file or directory, which replaces `path` at the end of the block.

    Until then `path` does not change; if the block or a write fails, it stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    remove(part)
    try:
        yield part
        _flush(part)
        if part.is_dir():
            remove(path)  # a directory cannot be replaced in one step
        os.replace(part, path)
    except BaseException as error:
        _name(error, path)
        with suppress(OSError):
            remove(part)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file's name to a disk error inside the block."""
    try:
        yield
    except OSError as error:
        _name(error, path)
        raise


def _name(error: BaseException, path: Path) -> None:
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = str(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _flush(path: Path) -> None:
    """Wait until the contents are on the disk, so that a crash cannot leave an empty file."""
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())


def remove(path: Path) -> None:
    """Delete a file or directory, if there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -- why a file cannot be written ------------------------------------------------------------------

_DISK = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EFBIG,
    errno.EIO,
}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_TORCH_WRITER = re.compile(r"PytorchStreamWriter|inline_container\.cc|Parent directory .* does not")


def disk_problem(error: BaseException) -> str | None:
    """The reason why files cannot be written, if that is the cause of `error`; else None."""
    for cause in _chain(error):
        number = _error_number(cause)
        if number in _DISK:
            name = getattr(cause, "filename", None)
            return f"{name or 'a file'} cannot be written: {os.strerror(number).lower()}"
        if isinstance(cause, RuntimeError) and _TORCH_WRITER.search(str(cause)):
            return "a checkpoint cannot be written: is the disk full?"
    return None


def _error_number(error: BaseException) -> int:
    if isinstance(error, OSError):
        return error.errno or 0
    match = _OS_ERROR.search(str(error))  # Rust libraries put the number into their message
    return int(match[1]) if match else 0


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
