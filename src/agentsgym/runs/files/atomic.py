"""Files that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class DamagedFile(ValueError):
    """A stored file that cannot be read; the message names it and says what is wrong with it."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Within, the path of a file or directory to write; it takes the place of `path` at the end.

    Until then `path` is as it was, and so it stays where the block or a write fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    remove(part)
    try:
        yield part
        _flush(part)
        if part.is_dir():
            remove(path)  # a directory cannot be exchanged in one step
        os.replace(part, path)
    except BaseException as error:
        _name(error, path)
        with suppress(OSError):
            remove(part)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within, an error of the disk is told with the name of the file."""
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
    """Wait until the contents are on the disk: a crash must not leave an empty file behind."""
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
