"""Counters of the engine's work."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentsgym.types import EngineStats

if TYPE_CHECKING:
    from agentsgym.generation.embedded.batch import RowTable
    from agentsgym.generation.embedded.forward import PassPlan


@dataclass(slots=True)
class Counters:
    """Running totals.

    `read_tokens` are the context tokens that forward passes read, that is all tokens except the
    just sampled ones. Beyond `EngineStats`' own fields, `extra` has: `reused_tokens` (context
    tokens found in the session's own cache), `shared_prefix_tokens` (copied from another session
    with the same prompt), `evictions` (caches dropped because memory was short), `reread_tokens`
    (read again after an eviction or reset), `offloaded` (caches moved out of the batch to make room
    for another session).
    """

    forward_passes: int = 0
    sampled_tokens: int = 0
    read_tokens: int = 0
    filled: float = 0.0
    reused_tokens: int = 0
    shared_prefix_tokens: int = 0
    evictions: int = 0
    reread_tokens: int = 0
    offloaded: int = 0

    def count(self, sequences: int, possible: int, read: int) -> None:
        """Count a pass over `sequences` of `possible` ones that reads `read` context tokens."""
        self.forward_passes += 1
        self.filled += sequences / possible
        self.read_tokens += read

    def count_pass(self, table: "RowTable", plan: "PassPlan", possible: int) -> None:
        """Count a pass of `plan` in which `possible` sequences could have taken part."""
        in_context = table.context[plan.rows] - plan.starts
        self.count(len(plan.rows), possible, int(in_context.clip(0, plan.chunks).sum()))
        if len(plan.copies):
            saved = plan.copies[:, 2] - table.cached[plan.copies[:, 1]]
            self.shared_prefix_tokens += int(saved.sum())

    def stats(self) -> EngineStats:
        """The totals as the protocol's record."""
        passes = self.forward_passes
        names = ("reused_tokens", "shared_prefix_tokens", "evictions", "reread_tokens", "offloaded")
        return EngineStats(
            forward_passes=passes,
            sampled_tokens=self.sampled_tokens,
            read_tokens=self.read_tokens,
            occupancy=self.filled / passes if passes else 1.0,
            extra={name: float(getattr(self, name)) for name in names},
        )
