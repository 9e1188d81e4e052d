"""Progress reports of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step: `step` of `max_steps` (None: only time limits the run), the completed
    `share` of the run, and the logged values."""

    step: int
    max_steps: int | None
    share: float
    seconds: float
    values: Mapping[str, Any]


class Progress(Protocol):
    """Receives the progress reports of a run."""

    def phase(self, name: str, what: str) -> None:
        """A phase begins: "model", "before", "rl" or "after"."""

    def warm_start(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """The warm start has done `step` of `steps` updates; `values` has its loss."""

    def step(self, report: StepReport) -> None:
        """An optimizer step was logged."""

    def note(self, text: str) -> None:
        """A message of one line."""


class Silent:
    """Shows nothing."""

    def phase(self, name: str, what: str) -> None:
        """Ignored."""

    def warm_start(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """Ignored."""

    def step(self, report: StepReport) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""
