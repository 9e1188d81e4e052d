"""The checks, each a function from a context to a finding, in the order they are run."""

from collections.abc import Callable

from agentsgym.testing.checks.degenerate import degenerate_players
from agentsgym.testing.checks.determinism import (
    another_process,
    interleaved,
    same_seed,
)
from agentsgym.testing.checks.ending import ending
from agentsgym.testing.checks.hostile import hostile_actions, listing
from agentsgym.testing.checks.masks import masks
from agentsgym.testing.checks.randomness import global_randomness
from agentsgym.testing.checks.rewards import rewards
from agentsgym.testing.checks.speed import speed
from agentsgym.testing.checks.tasks import tasks
from agentsgym.testing.context import Context
from agentsgym.testing.report import Finding

CHECKS: dict[str, Callable[[Context], Finding]] = {
    "tasks": tasks,
    "same seed": same_seed,
    "another process": another_process,
    "interleaved": interleaved,
    "global randomness": global_randomness,
    "ending": ending,
    "rewards": rewards,
    "masks": masks,
    "hostile actions": hostile_actions,
    "list everything": listing,
    "degenerate players": degenerate_players,
    "speed": speed,
}

__all__ = ["CHECKS"]
