"""metrics.jsonl: one JSON object per logged optimiser step or evaluation."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentsgym.report.encoding import plain


class MetricsFile:
    """Appends to a run's `metrics.jsonl`; each line is on disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, phase: str, step: int, values: Mapping[str, Any]) -> None:
        """Write one line: `step`, `phase`, and the values; what is not finite becomes null."""
        line = {"step": step, "phase": phase, **plain(values)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def drop_after(self, step: int) -> None:
        """Drop the lines beyond `step`, which a resumed run will write again."""
        if not self._path.exists():
            return
        kept = [line for line in read_metrics(self._path) if line["step"] <= step]
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept)
        self._path.write_text(text, encoding="utf-8")


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file; a last line that was cut off is left out."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
