"""The trainer's rollouts: places in the batch, their seeds, and playing them."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.rollout import Place, play
from agentsgym.rollout.trial import session_seed
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.distributed import Ranks
from agentsgym.types import Rollout, SamplingParams, TrainableEngine


class RolloutCollector:
    """Plays training and evaluation rollouts on this rank, with the weights that the engine has.

    The noise of a rollout is a function of (run seed, global step, task, rollout), so a resumed
    run plays what it would have played.
    """

    def __init__(
        self,
        engine: TrainableEngine,
        envs: EnvPool,
        args: GRPOEnvConfig,
        ranks: Ranks,
    ) -> None:
        self.engine = engine
        self.envs = envs
        self._args = args
        self._ranks = ranks

    def train_places(self, inputs: Sequence[Mapping[str, Any]], step: int) -> list[Place]:
        """A place for each local row. TRL repeats a task `num_generations` times over the slices
        of all ranks, so a group may straddle ranks; group numbers are global."""
        first = self._ranks.slice(len(inputs)).start
        places = []
        for offset, row in enumerate(inputs):
            group, index = divmod(first + offset, self._args.num_generations)
            seed = session_seed(self._args.seed, "train", step, group, index)
            places.append(Place(row, group, index, seed))
        return places

    def other_task(self, place: Place, dataset: Any, step: int, round_: int) -> Place:
        """The same place with another task; every rank draws the same one for a group."""
        parts = (self._args.seed, "again", step, round_, place.group)
        row = dataset[session_seed(*parts) % len(dataset)]
        return Place(row, place.group, place.index, session_seed(*parts, place.index))

    def eval_places(self, dataset: Any, name: str = "") -> list[Place]:
        """This rank's share of the evaluation tasks, `eval_rollouts` places each; `name` is that
        of the set, where there are several."""
        parts = (self._args.seed, "eval", *([name] if name else []))
        return [
            Place(dataset[task], task, index, session_seed(*parts, task, index))
            for task in range(self._ranks.index, len(dataset), self._ranks.number)
            for index in range(self._args.eval_rollouts)
        ]

    def train(self, places: Sequence[Place]) -> list[Rollout]:
        """Play with the training's sampling."""
        args = self._args
        sampling = SamplingParams(
            args.max_action_tokens,
            args.temperature,
            args.top_p,
            args.top_k,
            tuple(args.stop_strings),
        )
        return self._play(places, sampling)

    def evaluate(self, places: Sequence[Place]) -> list[Rollout]:
        """Play with the evaluation's own sampling."""
        args = self._args
        sampling = SamplingParams(
            args.max_action_tokens, args.eval_temperature, stop=tuple(args.stop_strings)
        )
        return self._play(places, sampling)

    def _play(self, places: Sequence[Place], sampling: SamplingParams) -> list[Rollout]:
        agent = DirectOutputAgent(self.engine, sampling)
        most = self._args.max_rollout_tokens
        rollouts = play(places, agent, self.envs, max_rollout_tokens=most)
        self.engine.finish()
        return rollouts
