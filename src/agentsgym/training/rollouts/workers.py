"""The rollout workers that a trainer's settings ask for."""

from typing import TYPE_CHECKING, Any

from agentsgym.envs import EnvPool
from agentsgym.training import setting_parsers as given
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.types import SamplingParams

if TYPE_CHECKING:
    from agentsgym.rollout.rollout_workers.source import RaySource


def rollout_workers(
    engine: Any, envs: EnvPool, args: GRPOEnvConfig, sampling: SamplingParams
) -> "RaySource":
    """A source over `args.rollout_workers` actors.

    Raises ConfigError if this process has no Ray cluster, MissingExtra if Ray is not installed, and
    TypeError for an engine whose servers others cannot reach.
    """
    from agentsgym.generation.vllm.engine import VLLMEngine
    from agentsgym.rollout.rollout_workers.source import RaySource

    if not isinstance(engine, VLLMEngine):
        raise TypeError(
            f"rollout_workers sample from the servers of a VLLMEngine, not from a "
            f"{type(engine).__name__}"
        )
    return RaySource(
        engine,
        envs,
        sampling,
        workers=args.rollout_workers,
        resources=given.mapping("rollout_worker_resources", args.rollout_worker_resources),
    )
