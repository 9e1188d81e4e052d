"""The checks, in the order they are run: functions that return Passed or raise Failed."""

from collections.abc import Callable

from agentsgym.checks.context import Context, Passed
from agentsgym.checks.rules.determinism import (
    another_process,
    global_randomness,
    interleaved,
    same_seed,
)
from agentsgym.checks.rules.episodes import clean_up, ending
from agentsgym.checks.rules.scores import degenerate_players, hostile_actions, listing, rewards
from agentsgym.checks.rules.tasks import masks, speed, tasks

CHECKS: dict[str, Callable[[Context], Passed]] = {
    "tasks": tasks,
    "same seed": same_seed,
    "another process": another_process,
    "interleaved": interleaved,
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
