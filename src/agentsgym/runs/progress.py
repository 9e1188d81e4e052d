"""What a run tells whoever watches it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step: `step` of `max_steps` (None: only time limits the run), `share` of the
    run that is done, and the logged values."""

    step: int
    max_steps: int | None
    share: float
    seconds: float
    values: Mapping[str, Any]


class Progress(Protocol):
    """Receives a run's progress."""

    def phase(self, name: str, what: str) -> None:
        """A phase begins: "model", "before", "rl" or "after"."""

    def warm_start(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """The warm start has done `step` of `steps` updates; `values` has its loss."""

    def step(self, report: StepReport) -> None:
        """An optimizer step was logged."""

    def note(self, text: str) -> None:
        """Something worth a line happened."""


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
