"""The trainer's rollouts: requests, their seeds, and playing them."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.envs.dataset import TaskRow, check_row
from agentsgym.evaluation import rollout_requests
from agentsgym.rollout import LocalSource, play
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.ranks import Ranks
from agentsgym.types import (
    Rollout,
    RolloutRequest,
    RolloutSource,
    SamplingParams,
    TrainableEngine,
    import_path,
    session_seed,
)

SOURCES = {"ray": "agentsgym.rollout.ray.source.RaySource"}
"""What plays rollouts elsewhere: the class by the section of the settings."""


def source_on(name: str) -> Any:
    """The class of that name, which is imported. Its `check` takes an engine, before anything is
    loaded; a `RolloutSource` is made of an engine, environments, how to sample, and its section."""
    return import_path(SOURCES[name], trust=True)


class RolloutCollector:
    """Plays training and evaluation rollouts on this rank, with the engine's current weights.

    The noise of a rollout is a function of (run seed, global step, task, rollout), so a resumed
    run plays the same rollouts as an uninterrupted one.
    """

    def __init__(
        self, engine: TrainableEngine, envs: EnvPool, args: GRPOEnvConfig, ranks: Ranks
    ) -> None:
        self.engine = engine
        self.envs = envs
        self.source: RolloutSource | None = None
        self._closed: LocalSource | None = None
        self._args = args
        self._ranks = ranks

    def train_requests(
        self, rows: Sequence[Mapping[str, Any]], step: int, first_group: int = 0
    ) -> list[RolloutRequest]:
        """This rank's part of the generation at `step`: `num_generations` requests for each row,
        in whole groups with numbers from `first_group`."""
        requests = [
            self._request(
                check_row(row, group),
                first_group + group,
                index,
                session_seed(self._args.seed, "train", step, group, index),
            )
            for group, row in enumerate(rows)
            for index in range(self._args.num_generations)
        ]
        return requests[self._ranks.slice(len(requests) // self._ranks.world_size)]

    def other_task(
        self, request: RolloutRequest, tasks: Any, step: int, round_: int
    ) -> RolloutRequest:
        """The same rollout with another task; every rank draws the same task for a group."""
        parts = (self._args.seed, "again", step, round_, request.group)
        seed = session_seed(*parts, request.index)
        row = check_row(tasks.other(request.task_data, session_seed(*parts)), request.group)
        return self._request(row, request.group, request.index, seed)

    def eval_requests(self, tasks: Any) -> list[RolloutRequest]:
        """This rank's share of an evaluation: of requests, or of `eval_rollouts` for each row."""
        requests: Sequence[RolloutRequest] = tasks
        if not isinstance(tasks[0], RolloutRequest):
            requests = rollout_requests(
                tasks,
                len(tasks) * self._args.eval_rollouts,
                rollouts_per_task=self._args.eval_rollouts,
                seed=self._args.seed,
                max_rollout_tokens=self._args.max_rollout_tokens,
            )
        return self.share(requests)

    def share(self, requests: Sequence[RolloutRequest]) -> list[RolloutRequest]:
        """This rank's part of requests: whole groups."""
        return [r for r in requests if r.group % self._ranks.world_size == self._ranks.rank]

    def _request(self, row: TaskRow, group: int, index: int, seed: int) -> RolloutRequest:
        most = self._args.max_rollout_tokens
        return RolloutRequest.of(row, group, index, seed, max_rollout_tokens=most)

    @property
    def train_sampling(self) -> SamplingParams:
        """The training's sampling settings."""
        args, stop = self._args, tuple(self._args.stop_strings)
        return SamplingParams(
            args.max_action_tokens, args.temperature, args.top_p, args.top_k, stop
        )

    @property
    def eval_sampling(self) -> SamplingParams:
        """The evaluation's own sampling settings."""
        args = self._args
        return SamplingParams(
            args.max_action_tokens, args.eval_temperature, stop=tuple(args.stop_strings)
        )

    def open_source(self) -> RolloutSource:
        """Play training rollouts in the background from now on, in this process or on Ray; what
        `play` gets comes before them."""
        args = self._args
        if args.ray.workers:
            self.source = source_on("ray")(
                self.engine,
                self.envs,
                self.train_sampling,
                workers=args.ray.workers,
                resources=dict(args.ray.resources),
            )
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

    def close(self) -> None:
        """End the playing in the background, and close the engine's connections."""
        self.close_source()
        self.engine.close()

    def await_engine(self) -> None:
        """Wait until nothing that was ended in the background is left in the engine: an action that
        had begun. To be called before the engine is used without a source."""
        if self._closed is not None:
            self._closed.wait_for_thread()
        self._closed = None

    def play(self, requests: Sequence[RolloutRequest], sampling: SamplingParams) -> list[Rollout]:
        """Play these, and return when all are over. Actors on Ray start with the first ones."""
        if self.source is None and self._args.ray.workers:
            self.open_source()
        if self.source is not None:
            return self.source.play(requests, sampling)
        agent = DirectOutputAgent(self.engine, sampling)
        return play(requests, agent, self.envs)

    @property
    def source_figures(self) -> dict[str, float]:
        """What the actors on Ray, if there are any, say of themselves, by metric."""
        figures: dict[str, float] = getattr(self.source, "figures", {})
        return {f"ray/{name}": value for name, value in figures.items()}
