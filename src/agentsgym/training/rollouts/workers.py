"""The rollout workers that a trainer's settings ask for."""

from typing import TYPE_CHECKING, Any

from agentsgym.envs import EnvPool
from agentsgym.training import setting_parsers as given
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.types import RolloutSource, SamplingParams

if TYPE_CHECKING:
    from agentsgym.rollout.rollout_workers.source import RaySource


def worker_figures(source: RolloutSource | None) -> dict[str, float]:
    """What rollout workers, if there are any, have to say of themselves, by metric."""
    figures: dict[str, float] = getattr(source, "figures", {})
    return {f"rollout_workers/{name}": value for name, value in figures.items()}


def check_workers(args: GRPOEnvConfig, engine: Any) -> None:
    """Check, before training, that there is a cluster for the rollout workers that `args` ask for,
    and let the engine know that they ask its servers too.

    Raises ConfigError if this process has no Ray cluster, MissingExtra if Ray is not installed, and
    TypeError for an engine whose servers others cannot reach.
    """
    if not args.rollout_workers:
        return
    from agentsgym.generation.vllm.engine import VLLMEngine
    from agentsgym.rollout.workers.ray_actor import connect

    if not isinstance(engine, VLLMEngine):
        raise TypeError(
            f"rollout_workers sample from the servers of a VLLMEngine, not from a "
            f"{type(engine).__name__}"
        )
    connect("rollout_workers is set")
    engine.share_servers()


def rollout_workers(
    engine: Any, envs: EnvPool, args: GRPOEnvConfig, sampling: SamplingParams
) -> "RaySource":
    """A source over `args.rollout_workers` actors. Raises as `check_workers`."""
    from agentsgym.rollout.rollout_workers.source import RaySource

    return RaySource(
        engine,
        envs,
        sampling,
        workers=args.rollout_workers,
        resources=given.mapping("rollout_worker_resources", args.rollout_worker_resources),
    )
