"""The rollouts of each generation: played when they are needed, or ahead of the learner, up to
`max_staleness` generations, and how old they are.

Generations are submitted and taken in their order, so a batch has the tasks and the noise that it
has without playing ahead, and a resumed run goes on with the generation of its step.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentsgym.training.branches import BranchPlan
from agentsgym.training.collect import RolloutCollector
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.ranks import Ranks
from agentsgym.training.tasks import TaskSet, tasks_per_generation
from agentsgym.types import Rollout, RolloutRequest, RolloutSource


class GenerationBatches:
    """The requests and rollouts of each generation. All ranks must call its methods.

    `push_weights(step)` lets the engine sample from the current weights, and `play(requests, step)`
    plays requests with them, and branches. Ahead of the learner trunks are played; their branches
    follow when the generation is due.
    """

    def __init__(
        self,
        args: GRPOEnvConfig,
        tasks: TaskSet,
        collector: RolloutCollector,
        ranks: Ranks,
        push_weights: Callable[[int], None],
        play: Callable[[Sequence[RolloutRequest], int], list[Rollout]],
        branches: BranchPlan,
    ) -> None:
        self._args = args
        self._tasks = tasks
        self._collector = collector
        self._ranks = ranks
        self._push_weights = push_weights
        self._play = play
        self._branches = branches
        self.end()

    def end(self) -> None:
        """End the playing."""
        self._collector.close_source()
        self._submitted: int | None = None
        self._open: dict[int, list[RolloutRequest]] = {}
        self._over: dict[str, Rollout] = {}
        self._sent: set[str] = set()
        self._before: tuple[float, float] | None = None
        self._waits: dict[str, float] = {}

    def next(self, step: int, max_steps: int) -> tuple[list[RolloutRequest], list[Rollout]]:
        """This rank's requests and rollouts of the generation after optimizer step `step`."""
        updates, most = self._args.updates_per_generation, self._args.max_staleness
        generation = step // updates
        if not most:
            requests = self._ranks.together(lambda: self._requests(generation))
            return requests, self._play(requests, step)
        last = (max_steps - 1) // updates
        source = self._ranks.together(
            lambda: self._collector.source or self._collector.open_source()
        )
        self._push_weights(step)
        requests, rollouts = self._ranks.together(lambda: self._ahead(source, generation, last))
        return requests, drop_stale(rollouts, step, updates, most)

    def figures(self, rollouts: Sequence[Rollout], step: int) -> dict[str, float]:
        """How the learner and the sampler waited for each other, means over ranks, and how old the
        rollouts are. Empty where nothing can be older than the policy."""
        every = self._ranks.gather([self._waits])
        values = {name: sum(of[name] for of in every) / len(every) for name in every[0]}
        if self._collector.engine.can_generate_ahead:
            updates = self._args.updates_per_generation
            ages = self._ranks.gather([age(rollout, step, updates) for rollout in rollouts])
            values |= {"staleness": sum(ages) / len(ages), "staleness/max": max(ages)}
        return values

    def _requests(self, generation: int) -> list[RolloutRequest]:
        """Groups that are played ahead are numbered over all generations, as several are open at
        once."""
        step = generation * self._args.updates_per_generation
        ahead = self._args.max_staleness > 0
        first = generation * tasks_per_generation(self._args) if ahead else 0
        return self._collector.train_requests(self._tasks.generation(generation), step, first)

    # -- ahead of the learner -------------------------------------------------------------------

    def _ahead(
        self, source: RolloutSource, generation: int, last: int
    ) -> tuple[list[RolloutRequest], list[Rollout]]:
        """The requests and rollouts of a generation, which later ones, up to the `last`, follow at
        once. Waits until it is complete. Raises the errors of the source."""
        self._submit(source, generation, last)
        started = time.perf_counter()
        self._receive(source.poll(0.0))
        requests = self._open.pop(generation)
        rollouts = self._branches.play(requests, lambda some: self._fetch(source, some))
        self._measure(source, started)
        return requests, rollouts

    def _fetch(self, source: RolloutSource, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """The rollouts of requests, which are submitted now if they were not before."""
        new = [request for request in requests if request.session_id not in self._sent]
        if new:
            source.submit(new)
        while any(request.session_id not in self._over for request in requests):
            self._receive(source.poll())
        self._sent -= {request.session_id for request in requests}
        return [self._over.pop(request.session_id) for request in requests]

    def _submit(self, source: RolloutSource, generation: int, last: int) -> None:
        """Submit what may be played now, and this generation in any case."""
        first = generation if self._submitted is None else self._submitted + 1
        self._submitted = max(generation, min(generation + self._args.max_staleness, last))
        fresh = {number: self._requests(number) for number in range(first, self._submitted + 1)}
        self._open |= fresh
        first_ones = [r for many in fresh.values() for r in self._branches.trunks(many)]
        if first_ones:
            source.submit(first_ones)
            self._sent |= {request.session_id for request in first_ones}

    def _receive(self, rollouts: Sequence[Rollout]) -> None:
        self._over |= {rollout.session_id: rollout for rollout in rollouts}

    def _measure(self, source: RolloutSource, started: float) -> None:
        """How the sides waited for each other since the batch before: the shares of that time
        `ahead/learner_waited` and `ahead/sampler_waited`. Nothing before the second batch."""
        now, idle = time.perf_counter(), source.idle_seconds
        if self._before is not None:
            passed = max(now - self._before[0], 1e-9)
            self._waits = {
                "ahead/learner_waited": min(1.0, (now - started) / passed),
                "ahead/sampler_waited": min(1.0, (idle - self._before[1]) / passed),
            }
        self._before = now, idle


def age(rollout: Rollout, step: int, updates: int) -> float:
    """How many generations old the weights are that sampled its last action; a generation is
    `updates` optimizer steps. 0 for a rollout that has none or carries no loss."""
    acted = not rollout.failed and any(episode.steps for episode in rollout.episodes)
    return max(0, step - rollout.policy_version) / updates if acted else 0.0


def drop_stale(rollouts: Sequence[Rollout], step: int, updates: int, most: int) -> list[Rollout]:
    """Mark rollouts older than `most` generations as failed, so that they carry no loss: one whose
    last action took longer than a generation."""
    reason = "dropped: sampled by version {}, max_staleness={}"
    return [
        replace(rollout, error=reason.format(rollout.policy_version, most))
        if age(rollout, step, updates) > most
        else rollout
        for rollout in rollouts
    ]
