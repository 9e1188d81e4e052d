"""metrics.jsonl: one JSON object per logged optimizer step or evaluation."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentsgym.runs.files.atomic import naming, write_text
from agentsgym.runs.files.formats import METRICS, NewerFormat
from agentsgym.types.text import plain


class MetricsFile:
    """Appends to a run's `metrics.jsonl`; when `append` returns, the operating system has the
    line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, phase: str, step: int, values: Mapping[str, Any]) -> None:
        """Write one line: its version, `step`, `phase`, and the values; infinite numbers and NaN
        become null."""
        line = METRICS.stamped({"step": step, "phase": phase, **plain(values)})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self._path), self._path.open("ab+") as file:
            file.write(_separator(file) + json.dumps(line, allow_nan=False).encode() + b"\n")

    def drop_after(self, step: int) -> None:
        """Drop the lines after `step`, which a resumed run will write again."""
        if not self._path.exists():
            return
        kept = [line for line in read_metrics(self._path) if line["step"] <= step]
        texts = [json.dumps(METRICS.stamped(line), allow_nan=False) + "\n" for line in kept]
        write_text(self._path, "".join(texts))


def _separator(file: Any) -> bytes:
    """A line end, if an earlier failed write left an incomplete line."""
    if file.seek(0, 2) == 0:
        return b""
    file.seek(-1, 2)
    return b"" if file.read(1) == b"\n" else b"\n"


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file, without their version; an incomplete line is ignored.

    Raises NewerFormat if a newer agentsgym wrote it.
    """
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        line = _parsed(text, path)
        if isinstance(line.get("step"), int) and "phase" in line:
            yield line


def _parsed(text: str, path: Path) -> dict[str, Any]:
    """A line's values; empty if it is damaged."""
    try:
        line = plain(json.loads(text))
        return METRICS.current(line, path) if isinstance(line, dict) else {}
    except NewerFormat:
        raise
    except (ValueError, RecursionError):
        return {}
