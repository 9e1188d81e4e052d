"""The index of a shard: which rollouts are in it, and where their blocks begin.

It is only a help for reading. It belongs to the shard if it names the shard's size; without one, or
with one that can't be read, the shard is read as a whole.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentsgym.runs.files.atomic import DamagedFile, write_text
from agentsgym.runs.files.formats import SHARD_INDEX, NewerFormat

SHARD = ".jsonl.gz"
_INDEX = ".index.json"
_MOST_BYTES = 1 << 26
_MOST_OF_A_BLOCK = 1 << 29
"""A block is read into memory; it has less than 4 MiB and one line, which has at most 256 MiB."""
_UNUSABLE = (
    OSError,
    NewerFormat,
    DamagedFile,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A rollout in a shard."""

    group: int
    index: int
    session_id: str


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a shard that can be read alone: the byte at which it begins, and its rollouts."""

    offset: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The blocks of a shard of `size` bytes, in their order."""

    size: int
    blocks: Sequence[Block]

    def with_group(self, group: int) -> Iterator[tuple[int, int]]:
        """First and last byte (exclusive) of each block that has rollouts of a group."""
        ends = [*(block.offset for block in self.blocks[1:]), self.size]
        for block, end in zip(self.blocks, ends, strict=True):
            if any(entry.group == group for entry in block.entries):
                yield block.offset, end


def index_path(shard: Path) -> Path:
    """The path of a shard's index."""
    return shard.with_name(shard.name.removesuffix(SHARD) + _INDEX)


def write_index(shard: Path, size: int, blocks: Sequence[Block]) -> None:
    """Write the index of a shard of `size` bytes."""
    data = {
        "shard": shard.name,
        "bytes": size,
        "blocks": [
            {"offset": block.offset, "rollouts": [asdict(entry) for entry in block.entries]}
            for block in blocks
        ],
    }
    write_text(index_path(shard), json.dumps(SHARD_INDEX.stamped(data)) + "\n")


def remove_index(shard: Path) -> None:
    """Delete a shard's index, if there is one."""
    index_path(shard).unlink(missing_ok=True)


def read_index(shard: Path) -> ShardIndex | None:
    """The index of a shard; None if it has none that can be used."""
    found, size = _read(shard), shard.stat().st_size
    if found is None:
        return None
    offsets = [block.offset for block in found.blocks]
    lengths = [end - start for start, end in itertools.pairwise([*offsets, size])]
    fits = found.size == size and offsets[:1] == [0] and min(lengths) > 0
    return found if fits and max(lengths) <= _MOST_OF_A_BLOCK else None


def _read(shard: Path) -> ShardIndex | None:
    """The content of a shard's index, whatever the shard is; None if it can't be read."""
    path = index_path(shard)
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return _parsed(SHARD_INDEX.current(json.loads(path.read_bytes()), path))
    except _UNUSABLE:
        return None


def is_cut_off(shard: Path, size: int) -> bool:
    """Whether a shard of `size` bytes ends where one of its blocks but the last one ends. Then all
    of its text can be read, and only the index knows that more was there. The shard itself may be
    gone by now."""
    index = _read(shard)
    return index is not None and any(block.offset == size for block in index.blocks[1:])


def _parsed(data: dict[str, Any]) -> ShardIndex:
    return ShardIndex(
        int(data["bytes"]),
        [
            Block(
                int(block["offset"]),
                [Entry(one["group"], one["index"], one["session_id"]) for one in block["rollouts"]],
            )
            for block in data["blocks"]
        ],
    )
