"""Tasks in a file of JSON lines, which may be larger than memory."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from agentsgym.types.records import Ints

_CHUNK = 1 << 24
_STRIDE = 16
_LINE_END = 10


class TaskFile(Sequence[Any]):
    """The rows of a file with one JSON object per line, each read when it is asked for.

    Opening reads the file once, to find its lines. In memory is then the place of every sixteenth
    line, half a byte per row; the file may not change while it is in use. A line that is not JSON
    is its text, so the checks of rows find and name it.

    Raises OSError if the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._starts, self._size = _find_lines(self.path)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"TaskFile({str(self.path)!r}, {self._size} rows)"

    @overload
    def __getitem__(self, number: int) -> Any: ...
    @overload
    def __getitem__(self, number: slice) -> list[Any]: ...
    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(self._size))]
        place = number + self._size if number < 0 else number
        if not 0 <= place < self._size:
            raise IndexError(f"row {number} of {self._size}")
        block, offset = divmod(place, _STRIDE)
        return _row(self._block(block)[offset])

    def __iter__(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            for line in file:
                yield _row(line)

    def _block(self, number: int) -> list[bytes]:
        """The lines from one known place to the next."""
        ends = self._starts[number + 1 : number + 2].tolist()
        start = int(self._starts[number])
        with self.path.open("rb", buffering=0) as file:
            file.seek(start)
            data = file.read(ends[0] - start if ends else -1)
        return data.split(b"\n")


def _find_lines(path: Path) -> tuple[Ints, int]:
    """The byte at which every sixteenth line begins, int64, and the number of lines."""
    starts = [np.zeros(1, np.int64)]
    lines, size, last = 0, 0, _LINE_END
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == _LINE_END)
            starts.append(size + 1 + ends[-(lines + 1) % _STRIDE :: _STRIDE])
            lines, size, last = lines + len(ends), size + len(chunk), chunk[-1]
    return np.concatenate(starts), lines + (last != _LINE_END)


def _row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace").rstrip("\n")
