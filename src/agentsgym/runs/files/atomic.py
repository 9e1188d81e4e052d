"""Files that are written completely or not at all."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


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


def opened(path: Path) -> BinaryIO:
    """A file of a run, opened to be read. Raises DamagedFile for what is no file, such as a pipe,
    which might never end; OSError for what can't be opened."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DamagedFile(f"{path} is no file")
    return path.open("rb")


def read_bytes(path: Path, most: int = -1) -> bytes:
    """What a file of a run holds, or its first `most` bytes. Raises the errors of `opened`."""
    with opened(path) as file:
        return file.read(most)


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
