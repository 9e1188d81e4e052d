"""Tasks in a file of JSON lines, which may be larger than memory."""

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

_STRIDE = 16


class TaskFile(Sequence[Any]):
    """The rows of a file with one JSON object per line, each read when it is asked for.

    Opening reads the file once, to find its lines. In memory is then the place of every sixteenth
    line, half a byte per row; the file may not change while it is in use. A line that is not JSON
    is its text, so the checks of rows find and name it.

    Raises OSError if the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._starts = array("q")
        self._size = place = 0
        with self.path.open("rb") as file:
            for line in file:
                if self._size % _STRIDE == 0:
                    self._starts.append(place)
                self._size += 1
                place += len(line)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"TaskFile({str(self.path)!r}, {len(self)} rows)"

    @overload
    def __getitem__(self, number: int) -> Any: ...
    @overload
    def __getitem__(self, number: slice) -> list[Any]: ...
    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        block, offset = divmod(range(self._size)[number], _STRIDE)
        with self.path.open("rb") as file:
            file.seek(self._starts[block])
            for _ in range(offset):
                file.readline()
            return _row(file.readline())

    def __iter__(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            yield from map(_row, file)


def _row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace").rstrip("\n")
