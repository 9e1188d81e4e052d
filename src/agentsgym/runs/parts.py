"""Parts that a run may do without, and what a run and its parts report to."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from agentsgym.types.names import ConfigError

PARTS = (
    "warm_start",
    "rehearsal",
    "curve",
)
"""Files of this package that a run may do without: no other file imports them."""


def part(name: str) -> Any:
    """The module of a part, imported now. Raises ConfigError for one that is not here."""
    if name not in PARTS:
        raise ConfigError(f"this copy of agentsgym has no {name}; it has {', '.join(PARTS)}")
    return import_module(f"agentsgym.runs.{name}")


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step: `step` of `max_steps` (None: only time limits the run), the completed
    `share` of the run, and the logged values."""

    step: int
    max_steps: int | None
    share: float
    seconds: float
    values: Mapping[str, Any]


class Progress:
    """Receives the progress reports of a run; this one shows nothing."""

    def phase(self, name: str, what: str) -> None:
        """A phase begins: "model", "probe", "before", "warm_start", "warm_started", "rl", "after",
        "report"."""

    def warm_start(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """The warm start has done `step` of `steps` updates; `values` has its loss."""

    def step(self, report: StepReport) -> None:
        """An optimizer step was logged."""

    def note(self, text: str) -> None:
        """A message of one line."""
