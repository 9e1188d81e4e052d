"""A shard: gzipped JSON lines of bounded size, in blocks that can be read alone.

Each block is a gzip member of its own, so `zcat` reads the shard as one text. A shard of several
blocks has an index beside it (`shard_index.py`).
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from agentsgym.runs.files.atomic import DamagedFile, replacing
from agentsgym.runs.files.encoding import RolloutLine, from_json, to_line
from agentsgym.runs.files.formats import ROLLOUTS, NewerFormat
from agentsgym.runs.files.shard_index import (
    Block,
    Entry,
    is_cut_off,
    read_index,
    remove_index,
    write_index,
)
from agentsgym.runs.files.stored import checked

# Level 1 is five times faster than the default, and the files are a fifth larger.
_COMPRESSION = 1
MOST_BYTES = 1 << 28
"""Limit for one line: an untrusted file may decompress to any length."""
BLOCK_BYTES = 1 << 22
SHARD_BYTES = 1 << 26
"""A block or a shard ends with the line that reaches this size, before compression."""


@dataclass(frozen=True, slots=True)
class _Text:
    """The lines of one block."""

    text: bytes
    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard that was written: its size in bytes, and its blocks."""

    path: Path
    size: int
    blocks: list[Block]

    def write_index(self) -> None:
        """One block needs no index."""
        if len(self.blocks) > 1:
            write_index(self.path, self.size, self.blocks)
        else:
            remove_index(self.path)


def write_shards(path_of: Callable[[int], Path], lines: Iterable[RolloutLine]) -> list[Path]:
    """Write rollouts to shards of about `SHARD_BYTES`, the parts `path_of(0)`, `path_of(1)`, …;
    they appear when all are complete, the first of them last. Parts that an earlier writing left
    are removed."""
    blocks, written = _blocks(lines), list[_Shard]()
    with ExitStack() as parts:  # is left in the opposite order
        for block in chain([next(blocks, _Text(b"", []))], blocks):
            path = path_of(len(written))
            part = parts.enter_context(replacing(path))
            written.append(_write_shard(path, part, chain([block], blocks)))
    for shard in written:
        shard.write_index()
    number = len(written)
    while path_of(number).exists():
        remove_shard(path_of(number))
        number += 1
    return [shard.path for shard in written]


def remove_shard(path: Path) -> None:
    """Delete a shard and its index, where they are there."""
    path.unlink(missing_ok=True)
    remove_index(path)


def _write_shard(path: Path, part: Path, blocks: Iterator[_Text]) -> _Shard:
    """Write blocks to `part`, which becomes `path`, until the shard is full."""
    with part.open("wb") as file:
        places = list(_written(file, blocks))
        return _Shard(path, file.tell(), places)


def _written(file: BinaryIO, blocks: Iterator[_Text]) -> Iterator[Block]:
    first = next(blocks)
    if len(first.text) < BLOCK_BYTES:  # it is the last
        file.write(_zipped(first))
        yield Block(0, first.entries)
        return
    for block, data in _compressed(_first(chain([first], blocks))):
        offset = file.tell()
        file.write(data)
        yield Block(offset, block.entries)


def _first(blocks: Iterator[_Text]) -> Iterator[_Text]:
    """The blocks of one shard."""
    total = 0
    for block in blocks:
        yield block
        total += len(block.text)
        if total >= SHARD_BYTES:
            return


def _compressed(blocks: Iterator[_Text]) -> Iterator[tuple[_Text, bytes]]:
    """Each block with its compressed text. A thread compresses it while the next one is encoded;
    zlib holds no lock of Python's."""
    waiting: tuple[_Text, Future[bytes]] | None = None
    with ThreadPoolExecutor(1, "agentsgym-shard") as pool:
        for block in blocks:
            started = pool.submit(_zipped, block)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = block, started
        if waiting is not None:
            yield waiting[0], waiting[1].result()


def _zipped(block: _Text) -> bytes:
    return gzip.compress(block.text, _COMPRESSION, mtime=0)


def _blocks(lines: Iterable[RolloutLine]) -> Iterator[_Text]:
    texts: list[bytes] = []
    entries: list[Entry] = []
    size = 0
    for line in lines:
        text = to_line(line) + b"\n"
        texts.append(text)
        entries.append(Entry(line.rollout.group, line.rollout.index, line.rollout.session_id))
        size += len(text)
        if size >= BLOCK_BYTES:
            yield _Text(b"".join(texts), entries)
            texts, entries, size = [], [], 0
    if texts:
        yield _Text(b"".join(texts), entries)


# -- reading --------------------------------------------------------------------------------------


def read_shard(path: Path) -> Iterator[RolloutLine]:
    """The rollouts of one shard. Raises DamagedFile if it has any other
    content, NewerFormat if a newer agentsgym wrote it; the lines before come first."""
    with path.open("rb") as file:
        yield from _read_lines(file, path)
        size = file.seek(0, io.SEEK_END)
    if is_cut_off(path, size):
        raise DamagedFile(f"{path} is damaged: it ends before the last block of its index")


def read_group(path: Path, group: int) -> Iterator[RolloutLine]:
    """The rollouts of one group in a shard; only their blocks are read if it has an index. Raises
    the same errors."""
    index = read_index(path)
    lines = read_shard(path) if index is None else _of_blocks(path, index.with_group(group))
    return (line for line in lines if line.rollout.group == group)


def _of_blocks(path: Path, places: Iterable[tuple[int, int]]) -> Iterator[RolloutLine]:
    with path.open("rb") as file:
        for start, stop in places:
            file.seek(start)
            yield from _read_lines(io.BytesIO(file.read(stop - start)), path)


def _read_lines(zipped: BinaryIO, path: Path) -> Iterator[RolloutLine]:
    number = 0
    try:
        with gzip.open(zipped, "rb") as file:
            while line := file.readline(MOST_BYTES):
                number += 1
                if len(line) == MOST_BYTES:
                    raise DamagedFile(f"it is longer than {MOST_BYTES} bytes")
                yield _read_line(line, path)
    except DamagedFile as error:
        raise DamagedFile(f"{path} is damaged: line {number}: {error}") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DamagedFile(f"{path} is damaged after line {number}: {error}") from None


def _read_line(text: bytes, path: Path) -> RolloutLine:
    try:
        return checked(from_json(ROLLOUTS.current(json.loads(text), path)))
    except (DamagedFile, NewerFormat):
        raise
    except KeyError as error:
        raise DamagedFile(f"{error} is missing") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFile(f"this is not a rollout ({error})") from None
