"""A run's evaluation on held-out tasks: before, during and after training the same rollouts."""

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentsgym.envs import MultistepEnv
from agentsgym.evaluation import Played, assess_played, rollout_requests
from agentsgym.runs.config import EvalConfig
from agentsgym.types import RolloutRequest

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer

logger = logging.getLogger(__name__)


class HeldOutTasks:
    """The evaluation tasks of an environment, and what the evaluations of a run play of them."""

    def __init__(self, dataset: Any, chosen: EvalConfig, max_rollout_tokens: int | None) -> None:
        self._rows: list[dict[str, Any]] = list(dataset)
        self._chosen = chosen
        self._max_rollout_tokens = max_rollout_tokens

    def __str__(self) -> str:
        return f"{self._chosen.episodes} episodes on held-out tasks"

    @property
    def requests(self) -> list[RolloutRequest]:
        """The rollouts of an evaluation."""
        return rollout_requests(
            self._rows,
            self._chosen.episodes,
            rollouts_per_task=self._chosen.rollouts_per_task,
            seed=self._chosen.seed,
            max_rollout_tokens=self._max_rollout_tokens,
        )

    def play(self, trainer: "GRPOEnvTrainer", step: int) -> Played:
        """Evaluate the trainer's weights after optimizer step `step`."""
        rollouts = trainer.play_evaluation(self.requests, step)
        return assess_played(rollouts, trainer.collector.envs, seed=self._chosen.seed)


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
