"""Plays generations ahead of the learner, up to `max_staleness` of them."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentsgym.training.rollouts.group_order import GroupOrder, Submitted
from agentsgym.training.rollouts.group_queue import GroupQueue
from agentsgym.types import Rollout, RolloutRequest, RolloutSource


@dataclass(frozen=True, slots=True)
class Waiting:
    """How the learner and the sampler waited since the batch before, as shares of that time, and
    the number of complete groups that wait for a later batch."""

    learner: float
    sampler: float
    complete: int


class AheadPlayer:
    """Batches of `groups` groups, each of which may come from a later generation than others.

    Generations are submitted in order, until `ahead + 1` of them are in the queue; no more groups
    are played than `batches` batches take. Groups are numbered over all generations, `groups_of`
    gives those of a generation, and `requests_of` the requests of a group. Of a resumed run
    `submitted` says what was in the queue; those groups are played first.
    """

    def __init__(
        self,
        source: RolloutSource,
        requests_of: Callable[[int], list[RolloutRequest]],
        groups_of: Callable[[int], Iterable[int]],
        *,
        groups: int,
        ahead: int,
        updates: int,
        batches: int,
        submitted: Submitted,
    ) -> None:
        self._source = source
        self._queue = GroupQueue(source, most_age=ahead, updates=updates)
        self._requests_of = requests_of
        self._groups = groups
        self._room = (ahead + 1) * groups
        self._left = batches * groups
        self._order = GroupOrder(submitted, groups_of)
        self._clock = _Clock()

    @property
    def submitted(self) -> Submitted:
        """What has been submitted so far, or will be before all other groups."""
        return self._order.left(self._queue.numbers)

    def batch(self, step: int) -> tuple[list[RolloutRequest], list[Rollout]]:
        """The requests and rollouts of the batch at optimizer step `step`. Raises the errors of the
        source."""
        self._fill(step)
        started = time.perf_counter()
        groups = self._queue.take(self._groups, step)
        self._left -= len(groups)
        self._clock.note(time.perf_counter() - started, self._source.idle_seconds)
        requests = [request for group in groups for request in group.requests]
        return requests, [rollout for group in groups for rollout in group.in_order()]

    def waiting(self) -> Waiting | None:
        """How the sides waited for each other; None before the second batch."""
        shares = self._clock.shares
        return None if shares is None else Waiting(*shares, self._queue.complete)

    def _fill(self, step: int) -> None:
        """Submit groups as long as there is room, and at least those of a batch."""
        room = min(self._room, max(self._left, self._groups)) - len(self._queue)
        numbers = self._order.take(room)
        if numbers:
            self._queue.submit([(number, self._requests_of(number)) for number in numbers], step)


class _Clock:
    """Measures the time between two batches."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self.shares: tuple[float, float] | None = None

    def note(self, waited: float, idle: float) -> None:
        """A batch is ready, for which the learner waited; `idle` are the sampler's idle seconds."""
        now = time.perf_counter()
        if self._last is not None:
            passed = max(now - self._last[0], 1e-9)
            self.shares = min(1.0, waited / passed), min(1.0, (idle - self._last[1]) / passed)
        self._last = now, idle
