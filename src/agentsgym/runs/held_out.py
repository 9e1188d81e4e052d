"""A run's evaluation on held-out tasks, before and after training."""

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import MultistepEnv
from agentsgym.evaluation import Played, default_cluster, evaluate, select
from agentsgym.evaluation.tasks import rollout_requests
from agentsgym.runs.config import EvalConfig
from agentsgym.types import RolloutRequest, SamplingParams

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer

logger = logging.getLogger(__name__)


class HeldOutTasks:
    """The evaluation tasks of an environment, and which of them the evaluations play."""

    def __init__(self, dataset: Any, chosen: EvalConfig) -> None:
        self._rows: list[dict[str, Any]] = list(dataset)
        self._chosen = chosen

    def __str__(self) -> str:
        return f"{self._chosen.episodes} episodes on held-out tasks"

    def during_training(self, settings: "GRPOEnvConfig") -> Any:
        """As many tasks as the evaluations before and after use, for `eval_strategy`."""
        if settings.eval_strategy == "no":
            return None
        chosen = self._chosen
        wanted = -(-chosen.episodes // chosen.rollouts_per_task)
        rows = select(self._rows, wanted, seed=chosen.seed, cluster=default_cluster)
        return [self._rows[number] for number in rows]

    def play(self, trainer: "GRPOEnvTrainer", step: int) -> Played:
        """Evaluate the trainer's weights after optimizer step `step`."""
        settings, chosen = trainer.args, self._chosen
        trainer.push_weights(step)
        sampling = SamplingParams(
            settings.max_action_tokens,
            chosen.temperature,
            stop=tuple(settings.stop_strings),
        )
        return evaluate(
            self._rows,
            DirectOutputAgent(trainer.collector.engine, sampling),
            episodes=chosen.episodes,
            rollouts_per_task=chosen.rollouts_per_task,
            seed=chosen.seed,
            envs=trainer.collector.envs,
            max_rollout_tokens=settings.max_rollout_tokens,
        )

    def other_references(self, env: MultistepEnv) -> dict[str, float]:
        """The mean scores of the environment's other players on the same tasks, by name."""
        chosen = self._chosen
        asked = rollout_requests(
            self._rows,
            chosen.episodes,
            rollouts_per_task=chosen.rollouts_per_task,
            seed=chosen.seed,
        )
        return other_references(env, asked)


def other_references(env: MultistepEnv, asked: Sequence[RolloutRequest]) -> dict[str, float]:
    """The mean scores of the environment's other players on these tasks, by name; without those
    that are not known on every task."""
    try:
        found = [env.other_references(one.task_data) for one in asked]
    except Exception as error:  # a user's environment may raise anything
        logger.warning("%s: the scores of other players: %r", env.name, error)
        return {}
    names = [name for name in found[0] if all(name in scores for scores in found)] if found else []
    means = {name: math.fsum(scores[name] for scores in found) / len(found) for name in names}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}
