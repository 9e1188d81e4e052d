"""The checks, each a function from a context to a finding, in the order they are run."""

from collections.abc import Callable

from agentsgym.checks.context import Context
from agentsgym.checks.report import Finding
from agentsgym.checks.rules.clean_up import clean_up
from agentsgym.checks.rules.degenerate import degenerate_players
from agentsgym.checks.rules.determinism import (
    another_process,
    interleaved,
    same_seed,
)
from agentsgym.checks.rules.ending import ending
from agentsgym.checks.rules.hostile import hostile_actions, listing
from agentsgym.checks.rules.masks import masks
from agentsgym.checks.rules.randomness import global_randomness
from agentsgym.checks.rules.rewards import rewards
from agentsgym.checks.rules.speed import speed
from agentsgym.checks.rules.tasks import tasks
from agentsgym.checks.rules.trials import trials

CHECKS: dict[str, Callable[[Context], Finding]] = {
    "tasks": tasks,
    "same seed": same_seed,
    "another process": another_process,
    "interleaved": interleaved,
    "trials": trials,
    "global randomness": global_randomness,
    "ending": ending,
    "clean-up": clean_up,
    "rewards": rewards,
    "masks": masks,
    "hostile actions": hostile_actions,
    "list everything": listing,
    "degenerate players": degenerate_players,
    "speed": speed,
}

__all__ = ["CHECKS"]
