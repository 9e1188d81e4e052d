"""Where the trainer's rollouts come from: places in the batch, seeds, the engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.rollout import Place, play
from agentsgym.rollout.trial import session_seed
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.ranks import Ranks
from agentsgym.training.rollouts.prefetch import Ahead
from agentsgym.training.rollouts.staleness import drop_stale
from agentsgym.types import Rollout, SamplingParams, TrainableEngine


class Player:
    """Plays training and evaluation rollouts on this rank.

    The noise of a rollout is a function of (run seed, global step, task, rollout), so a resumed
    run plays what it would have played.
    """

    def __init__(
        self,
        engine: TrainableEngine,
        envs: EnvPool,
        args: GRPOEnvConfig,
        ranks: Ranks,
        push: Callable[[int], None],
    ) -> None:
        """`push(step)` makes the engine sample from the weights as they are now."""
        self.engine = engine
        self.envs = envs
        self._args = args
        self._ranks = ranks
        self._push = push
        self._ahead = Ahead(self._play_training)

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

    def train(self, places: Sequence[Place], step: int) -> list[Rollout]:
        """Play with the training's sampling, or take what was played ahead. Rollouts that are too
        old come back as failed."""
        rollouts = self._ahead.take(places)
        self._push(step)
        if rollouts is None:
            rollouts = self._play_training(places)
        args = self._args
        return drop_stale(rollouts, step, args.steps_per_window, args.max_staleness)

    def train_ahead(self, places: Sequence[Place]) -> None:
        """Begin to play what `train` will be asked for next, with the weights that it pushed."""
        self._ahead.start(places)

    def refresh(self, step: int) -> None:
        """Wait for what is played ahead, then let the engine sample from the weights as they are
        now."""
        self._ahead.wait()
        self._push(step)

    def evaluate(self, places: Sequence[Place], step: int) -> list[Rollout]:
        """Play with the evaluation's own sampling."""
        args = self._args
        sampling = SamplingParams(
            args.max_action_tokens, args.eval_temperature, stop=tuple(args.stop_strings)
        )
        self.refresh(step)
        return self._play(places, sampling)

    def _play_training(self, places: Sequence[Place]) -> list[Rollout]:
        args = self._args
        sampling = SamplingParams(
            args.max_action_tokens,
            args.temperature,
            args.top_p,
            args.top_k,
            tuple(args.stop_strings),
        )
        return self._play(places, sampling)

    def _play(self, places: Sequence[Place], sampling: SamplingParams) -> list[Rollout]:
        agent = DirectOutputAgent(self.engine, sampling)
        most = self._args.max_rollout_tokens
        rollouts = play(places, agent, self.envs, max_rollout_tokens=most)
        self.engine.finish()
        return rollouts
