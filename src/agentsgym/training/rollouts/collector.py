"""The trainer's rollouts: requests, their seeds, and playing them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.envs.dataset import TaskRow, check_row
from agentsgym.rollout import LocalSource, play
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.distributed import Ranks
from agentsgym.training.rollouts.group_queue import sampled_by
from agentsgym.training.rollouts.workers import rollout_workers
from agentsgym.types import (
    Rollout,
    RolloutRequest,
    RolloutSource,
    Row,
    SamplingParams,
    TrainableEngine,
    session_seed,
)


class RolloutCollector:
    """Plays training and evaluation rollouts on this rank, with the engine's current weights.

    The noise of a rollout is a function of (run seed, global step, task, rollout), so a resumed
    run plays the same rollouts as an uninterrupted one.
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
        self.source: RolloutSource | None = None
        self._closed: LocalSource | None = None
        self._args = args
        self._ranks = ranks

    def train_requests(
        self, inputs: Sequence[Mapping[str, Any]], step: int
    ) -> list[RolloutRequest]:
        """A request for each local row. TRL repeats a task `num_generations` times over the slices
        of all ranks, so a group may be spread over ranks; group numbers are global."""
        first = self._ranks.slice(len(inputs)).start
        requests = []
        for offset, row in enumerate(inputs):
            group, index = divmod(first + offset, self._args.num_generations)
            seed = session_seed(self._args.seed, "train", step, group, index)
            requests.append(self._request(check_row(row, first + offset), group, index, seed))
        return requests

    def group_requests(
        self, row: Mapping[str, Any], step: int, group: int, number: int
    ) -> list[RolloutRequest]:
        """The requests of a whole group, number `group` of the generation at `step`, with the noise
        that `train_requests` gives it there; `number` is its number in the run."""
        checked = check_row(row, number)
        seeds = [
            session_seed(self._args.seed, "train", step, group, index)
            for index in range(self._args.num_generations)
        ]
        return [self._request(checked, number, index, seed) for index, seed in enumerate(seeds)]

    def other_task(
        self, request: RolloutRequest, dataset: Any, step: int, round_: int
    ) -> RolloutRequest:
        """The same rollout with another task; every rank draws the same task for a group."""
        parts = (self._args.seed, "again", step, round_, request.group)
        number = session_seed(*parts) % len(dataset)
        seed = session_seed(*parts, request.index)
        row = check_row(dataset[number], number)
        return self._request(row, request.group, request.index, seed)

    def eval_requests(self, dataset: Any, name: str = "") -> list[RolloutRequest]:
        """This rank's share of the evaluation tasks, `eval_rollouts` requests each; `name` is the
        set's name if there are several."""
        parts = (self._args.seed, "eval", *([name] if name else []))
        return [
            self._request(row, task, index, session_seed(*parts, task, index))
            for task in range(self._ranks.index, len(dataset), self._ranks.number)
            for row in [check_row(dataset[task], task)]
            for index in range(self._args.eval_rollouts)
        ]

    def _request(self, row: TaskRow, group: int, index: int, seed: int) -> RolloutRequest:
        most = self._args.max_rollout_tokens
        return RolloutRequest.of(row, group, index, seed, max_rollout_tokens=most)

    @property
    def train_sampling(self) -> SamplingParams:
        """The training's sampling settings."""
        args = self._args
        return SamplingParams(
            args.max_action_tokens,
            args.temperature,
            args.top_p,
            args.top_k,
            tuple(args.stop_strings),
        )

    @property
    def eval_sampling(self) -> SamplingParams:
        """The evaluation's own sampling settings."""
        args = self._args
        return SamplingParams(
            args.max_action_tokens, args.eval_temperature, stop=tuple(args.stop_strings)
        )

    def train(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Play with the training's sampling settings."""
        return self.play(requests, self.train_sampling)

    def evaluate(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Play with the evaluation's own sampling settings."""
        return self.play(requests, self.eval_sampling)

    def open_source(self) -> RolloutSource:
        """Play training rollouts in the background from now on, in this process or on rollout
        workers; what `train` and `evaluate` play comes before them."""
        if self._args.rollout_workers:
            workers = rollout_workers(self.engine, self.envs, self._args, self.train_sampling)
            self.source = workers
        else:
            self.await_engine()
            agent = DirectOutputAgent(self.engine, self.train_sampling)
            self.source = LocalSource(agent, self.envs)
        return self.source

    def close_source(self) -> None:
        """End the playing in the background, if there is any."""
        if self.source is not None:
            self.source.close()
        if isinstance(self.source, LocalSource):
            self._closed = self.source
        self.source = None

    def await_engine(self) -> None:
        """Wait until nothing that was ended in the background is left in the engine: an action that
        had begun. To be called before the engine is used without a source."""
        if self._closed is not None:
            self._closed.wait_for_thread()
        self._closed = None

    def play(self, requests: Sequence[RolloutRequest], sampling: SamplingParams) -> list[Rollout]:
        """Play these, and return when all are over. Rollout workers start with the first ones."""
        if self.source is None and self._args.rollout_workers:
            self.open_source()
        if self.source is not None:
            return self.source.play(requests, sampling)
        agent = DirectOutputAgent(self.engine, sampling)
        rollouts = play(requests, agent, self.envs)
        self.engine.finish()
        return rollouts


def age(rollout: Rollout, step: int, updates: int) -> float:
    """How many generations old the weights are that sampled its last action; a generation is
    `updates` optimizer steps. 0 for a rollout that has none or carries no loss."""
    version = sampled_by(rollout)
    return 0.0 if version is None else max(0, step - version) / updates


def drop_stale(rollouts: Sequence[Rollout], step: int, updates: int, most: int) -> list[Rollout]:
    """Mark rollouts older than `most` generations as failed, so that they carry no loss."""
    return [
        _dropped(rollout, most) if age(rollout, step, updates) > most else rollout
        for rollout in rollouts
    ]


def _dropped(rollout: Rollout, most: int) -> Rollout:
    reason = f"dropped: sampled by version {rollout.policy_version}, max_staleness={most}"
    return replace(rollout, error=reason, rows=tuple(map(_masked, rollout.rows)))


def _masked(row: Row) -> Row:
    length = len(row.token_ids)
    return replace(row, agent_token_mask=(0,) * length, per_token_rewards=(0.0,) * length)
