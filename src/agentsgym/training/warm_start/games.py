"""The scripted games of a warm start: played when they are needed, each used once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from agentsgym.envs.base import MultistepEnv
from agentsgym.training.warm_start.config import WarmStartConfig
from agentsgym.training.warm_start.imitation import batches, examples_of, normalize, pad
from agentsgym.types import Agent, RolloutBatch


class ScriptedGames:
    """Plays scripted games on randomly drawn tasks, each pass over the tasks in a new order."""

    def __init__(
        self,
        env: MultistepEnv,
        agent: Agent,
        tasks: Sequence[Mapping[str, Any]],
        rng: np.random.Generator,
    ) -> None:
        self.env = env
        self._agent = agent
        self._tasks = tasks
        self._rng = rng
        self._order: list[int] = []

    def play(self, count: int) -> RolloutBatch:
        """Play `count` games."""
        while len(self._order) < count:
            self._order += self._rng.permutation(len(self._tasks)).tolist()
        chosen, self._order = self._order[:count], self._order[count:]
        return self.env.run_trial([self._tasks[i] for i in chosen], self._agent)

    def endless(
        self, tokenizer: Any, config: WarmStartConfig
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Endless batches of new games."""
        step = 0
        while True:
            rollouts = self.play(config.games_per_round).rollouts
            weight = config.final_weight_at(step)
            examples = examples_of(rollouts, tokenizer.eos_token_id, weight)
            examples = normalize(examples, config.batch_size)
            for batch in batches(examples, config.batch_size, self._rng):
                step += 1
                yield pad(batch, tokenizer.pad_token_id)


def texts_of(batch: RolloutBatch) -> list[tuple[str, str]]:
    """(observation, action) of each step. Raises RuntimeError if a game failed."""
    for rollout in batch.rollouts:
        if rollout.failed:
            raise RuntimeError(f"a scripted game failed:\n{rollout.error}")
    return [
        (step.observation, step.action)
        for rollout in batch.rollouts
        for episode in rollout.episodes
        for step in episode.steps
    ]
