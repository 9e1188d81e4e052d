"""Which generations of a run keep their rollouts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from agentsgym.types.settings import Count, Positive, Section


class RolloutFile(NamedTuple):
    """A file of a generation: the process that wrote it, the optimizer steps before it, its path,
    and its bytes on disk."""

    rank: int
    step: int
    path: Path
    size: int


class KeepRollouts(Section):
    """The training rollouts that stay on disk. Without a setting, everything is kept. Evaluations
    and the games of a warm start are always kept, and so is the newest generation."""

    last: Count | None = Field(default=None, description="Those of the last generations.")
    every: Count | None = Field(
        default=None, description="Those of generations whose step is a multiple of it."
    )
    gigabytes: Positive | None = Field(
        default=None, description="Of these the newest that fit in 10⁹ bytes, compressed."
    )

    @property
    def everything(self) -> bool:
        """Whether nothing is ever deleted."""
        return self.last is None and self.every is None and self.gigabytes is None

    def outdated(self, files: Sequence[RolloutFile], rank: int = 0) -> list[Path]:
        """The files that the process `rank` deletes, of all files of a run's generations: its
        own, and the first one also those of processes that wrote none of the last two."""
        kept = set(_within(self._named({one.step for one in files}), files, self))
        last = sorted({one.step for one in files})[-2:]
        there = {one.rank for one in files if one.step in last}
        return [
            one.path
            for one in files
            if one.step not in kept and (one.rank == rank or (rank == 0 and one.rank not in there))
        ]

    def _named(self, steps: set[int]) -> list[int]:
        """The steps that the settings name, the newest first."""
        newest = sorted(steps, reverse=True)
        if self.last is None and self.every is None:
            return newest
        last = newest[: max(1, self.last or 0)]
        marked = [s for s in newest if self.every is not None and s % self.every == 0]
        return sorted({*last, *marked}, reverse=True)


def _within(
    steps: Sequence[int], files: Sequence[RolloutFile], keep: KeepRollouts
) -> Sequence[int]:
    """The first of the steps whose files fit, and at least one."""
    if keep.gigabytes is None:
        return steps
    left = keep.gigabytes * 1e9
    for number, step in enumerate(steps):
        left -= sum(one.size for one in files if one.step == step)
        if left < 0:
            return steps[: max(1, number)]
    return steps
