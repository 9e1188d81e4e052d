"""Playing trials: one at a time, or many at once with one engine."""

from agentsgym.rollout.ahead import LocalSource
from agentsgym.rollout.failures import EveryRolloutFailed
from agentsgym.rollout.run import play, run, run_env
from agentsgym.types import RolloutRequest

__all__ = [
    "EveryRolloutFailed",
    "LocalSource",
    "RolloutRequest",
    "play",
    "run",
    "run_env",
]
