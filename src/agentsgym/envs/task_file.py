"""Tasks in a file of JSON lines, which may be larger than memory."""

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class TaskFile:
    """The rows of a file with one JSON object per line, each read when it is asked for.

    Opening reads the file once, to find its lines. In memory is then the place of every line, eight
    bytes; the file may not change while it is in use. A line that is not JSON is its text, so the
    checks of rows find and name it.

    Raises OSError if the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._starts = array("q")
        place = 0
        with self.path.open("rb") as file:
            for line in file:
                self._starts.append(place)
                place += len(line)

    def __len__(self) -> int:
        return len(self._starts)

    def __repr__(self) -> str:
        return f"TaskFile({str(self.path)!r}, {len(self)} rows)"

    def __getitem__(self, number: int) -> Any:
        with self.path.open("rb") as file:
            file.seek(self._starts[number])
            return _row(file.readline())

    def __iter__(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            yield from map(_row, file)


def _row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace").rstrip("\n")
