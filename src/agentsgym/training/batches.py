"""The rollouts of each generation: played when they are needed, or ahead of the learner, up to
`max_staleness` generations, and how old they are.

Generations are submitted and taken in their order, so a batch has the tasks and the noise that it
has without playing ahead, and a resumed run goes on with the generation of its step.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentsgym.training.collect import RolloutCollector
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.ranks import Ranks
from agentsgym.training.tasks import Tasks, tasks_per_generation
from agentsgym.types import Rollout, RolloutRequest, RolloutSource


class GenerationBatches:
    """The requests and rollouts of each generation. All ranks must call its methods.

    `push_weights(step)` lets the engine sample from the current weights.
    """

    def __init__(
        self,
        args: GRPOEnvConfig,
        tasks: Tasks,
        collector: RolloutCollector,
        ranks: Ranks,
        push_weights: Callable[[int], None],
    ) -> None:
        self._args = args
        self._tasks = tasks
        self._collector = collector
        self._ranks = ranks
        self._push_weights = push_weights
        self._player: AheadPlayer | None = None

    def end(self) -> None:
        """End the playing."""
        self._collector.close_source()
        self._player = None

    def next(self, step: int, max_steps: int) -> tuple[list[RolloutRequest], list[Rollout]]:
        """This rank's requests and rollouts of the generation after optimizer step `step`."""
        updates, most = self._args.updates_per_generation, self._args.max_staleness
        generation = step // updates
        if not most:
            requests = self._ranks.together(lambda: self._requests(generation))
            return requests, self.play(requests, step)
        last = (max_steps - 1) // updates
        player = self._ranks.together(lambda: self._player_from(generation, last))
        self._push_weights(step)
        requests, rollouts = self._ranks.together(lambda: player.batch(generation))
        return requests, drop_stale(rollouts, step, updates, most)

    def play(self, requests: Sequence[RolloutRequest], step: int) -> list[Rollout]:
        """Training rollouts of these requests, played now with the current weights."""
        self._push_weights(step)
        return self._ranks.together(lambda: self._collector.train(requests))

    def figures(self, rollouts: Sequence[Rollout], step: int) -> dict[str, float]:
        """How the learner and the sampler waited for each other, means over ranks, and how old the
        rollouts are. Empty where nothing can be older than the policy."""
        values: dict[str, float] = {}
        if self._player is not None:
            every = self._ranks.gather([self._player.figures])
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

    def _player_from(self, generation: int, last: int) -> "AheadPlayer":
        """The player of a training that begins or continues with this generation."""
        if self._player is None:
            self._player = AheadPlayer(
                self._collector.source or self._collector.open_source(),
                self._requests,
                first=generation,
                last=last,
                ahead=self._args.max_staleness,
            )
        return self._player


class AheadPlayer:
    """Plays the generations `first` to `last` with `source`, up to `ahead` of them before they are
    needed; `requests_of` gives a generation's requests on this rank."""

    def __init__(
        self,
        source: RolloutSource,
        requests_of: Callable[[int], list[RolloutRequest]],
        *,
        first: int,
        last: int,
        ahead: int,
    ) -> None:
        self._source = source
        self._requests_of = requests_of
        self._next = first
        self._last = last
        self._ahead = ahead
        self._open: dict[int, list[RolloutRequest]] = {}
        self._over: dict[str, Rollout] = {}
        self._before: tuple[float, float] | None = None
        self.figures: dict[str, float] = {}
        """How the sides waited for each other since the batch before: the shares of that time
        `ahead/learner_waited` and `ahead/sampler_waited`, and `ahead/groups_ready`, the number of
        complete groups of later batches. Empty before the second batch."""

    def batch(self, generation: int) -> tuple[list[RolloutRequest], list[Rollout]]:
        """The requests and rollouts of a generation, which later ones follow at once. Waits until
        it is complete. Raises the errors of the source."""
        self._submit(generation)
        started = time.perf_counter()
        self._receive(self._source.poll(0.0))
        requests = self._open.pop(generation)
        while any(request.session_id not in self._over for request in requests):
            self._receive(self._source.poll())
        rollouts = [self._over.pop(request.session_id) for request in requests]
        self._measure(started)
        return requests, rollouts

    def _submit(self, generation: int) -> None:
        """Submit what may be played now, and this generation in any case."""
        until = max(generation, min(generation + self._ahead, self._last))
        fresh = []
        while self._next <= until:
            self._open[self._next] = self._requests_of(self._next)
            fresh += self._open[self._next]
            self._next += 1
        if fresh:
            self._source.submit(fresh)

    def _receive(self, rollouts: Sequence[Rollout]) -> None:
        self._over |= {rollout.session_id: rollout for rollout in rollouts}

    def _measure(self, started: float) -> None:
        now, idle = time.perf_counter(), self._source.idle_seconds
        if self._before is not None:
            passed = max(now - self._before[0], 1e-9)
            self.figures = {
                "ahead/learner_waited": min(1.0, (now - started) / passed),
                "ahead/sampler_waited": min(1.0, (idle - self._before[1]) / passed),
                "ahead/groups_ready": float(self._groups_ready()),
            }
        self._before = now, idle

    def _groups_ready(self) -> int:
        sizes = Counter(r.group for requests in self._open.values() for r in requests)
        over = Counter(rollout.group for rollout in self._over.values())
        return sum(size == over[group] for group, size in sizes.items())


def age(rollout: Rollout, step: int, updates: int) -> float:
    """How many generations old the weights are that sampled its last action; a generation is
    `updates` optimizer steps. 0 for a rollout that has none or carries no loss."""
    acted = not rollout.failed and any(episode.steps for episode in rollout.episodes)
    return max(0, step - rollout.policy_version) / updates if acted else 0.0


def drop_stale(rollouts: Sequence[Rollout], step: int, updates: int, most: int) -> list[Rollout]:
    """Mark rollouts older than `most` generations as failed, so that they carry no loss: one whose
    last action took longer than a generation."""
    return [
        _dropped(rollout, most) if age(rollout, step, updates) > most else rollout
        for rollout in rollouts
    ]


def _dropped(rollout: Rollout, most: int) -> Rollout:
    reason = f"dropped: sampled by version {rollout.policy_version}, max_staleness={most}"
    return replace(rollout, error=reason)
