"""Playing trials: one at a time, or many at once with one engine."""

from agentsgym.rollout.drive import GenerationError, drive, is_engine_agent
from agentsgym.rollout.failures import EveryRolloutFailed
from agentsgym.rollout.run import Place, play, run, run_env

__all__ = [
    "EveryRolloutFailed",
    "GenerationError",
    "Place",
    "drive",
    "is_engine_agent",
    "play",
    "run",
    "run_env",
]
