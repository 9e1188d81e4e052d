"""Whole groups from a rollout source, in the order in which they finish.

The invariant: a batch has no rollout whose last action was sampled more than `most_age` generations
ago, and no group is split or left out. It holds while at most `most_age + 1` generations of groups
are in the queue and an action takes no longer than a generation: what is being played then ends
with the weights of this generation or the one before, so that each group has a batch that it must
enter at the latest. `choose` keeps enough places for those.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentsgym.types import Rollout, RolloutRequest, RolloutSource


@dataclass(slots=True, eq=False)
class Group:
    """One group in the queue.

    Args:
        number: its place in the order of submission.
        requests: those of its rollouts.
        submitted: the version of the weights when it was submitted.
        rollouts: those that are over, by session.
        finished: its place in the order in which groups finished; None until then.
        oldest: the lowest version that sampled the last action of one of `rollouts`; None: none.
    """

    number: int
    requests: Sequence[RolloutRequest]
    submitted: int = 0
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    finished: int | None = None
    oldest: int | None = None

    def add(self, rollout: Rollout) -> bool:
        """Add a rollout that is over; whether the group is complete."""
        self.rollouts[rollout.session_id] = rollout
        version = sampled_by(rollout)
        if version is not None:
            self.oldest = version if self.oldest is None else min(self.oldest, version)
        return len(self.rollouts) == len(self.requests)

    def lowest(self, open_version: int) -> float:
        """The lowest version that one of its rollouts has or may still get, if an action that is
        open now is sampled from version `open_version` or a later one."""
        known = math.inf if self.oldest is None else self.oldest
        return known if self.finished is not None else min(known, max(self.submitted, open_version))

    def in_order(self) -> list[Rollout]:
        """The rollouts in the order of the requests."""
        return [self.rollouts[request.session_id] for request in self.requests]


class GroupQueue:
    """The groups that were submitted to `source` and not taken. Every optimizer step makes a
    version, and `updates` of them a generation."""

    def __init__(self, source: RolloutSource, *, most_age: int, updates: int) -> None:
        self._source = source
        self._most_age = most_age
        self._updates = updates
        self._groups: dict[int, Group] = {}
        self._group_of: dict[str, Group] = {}
        self._finished = 0
        self._taken = 0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the groups in the queue."""
        return list(self._groups)

    @property
    def complete(self) -> int:
        """How many of the groups are complete."""
        return self._finished - self._taken

    def submit(self, groups: Sequence[tuple[int, Sequence[RolloutRequest]]], step: int) -> None:
        """Let groups be played, each with its number, in this order, with the weights of optimizer
        step `step`."""
        for number, requests in groups:
            group = self._groups[number] = Group(number, requests, step)
            self._group_of |= {request.session_id: group for request in requests}
        self._source.submit([request for _, requests in groups for request in requests])

    def take(self, size: int, step: int) -> list[Group]:
        """`size` groups for the batch at optimizer step `step`, in the order of submission. Waits
        until they are complete. Raises the errors of the source."""
        self._receive(self._source.poll(0.0))
        while (chosen := self._choose(size, step)) is None:
            self._receive(self._source.poll())
        for group in chosen:
            del self._groups[group.number]
            for request in group.requests:
                del self._group_of[request.session_id]
        self._taken += size
        return sorted(chosen, key=lambda group: group.number)

    def _choose(self, size: int, step: int) -> list[Group] | None:
        if self.complete < size:
            return None
        steps = [step + ahead * self._updates for ahead in range(self._most_age + 1)]
        groups = list(self._groups.values())
        return choose(groups, size, steps, self._most_age * self._updates, step - self._updates)

    def _receive(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            group = self._group_of[rollout.session_id]
            if group.add(rollout):
                group.finished = self._finished
                self._finished += 1


def choose(
    groups: Sequence[Group], size: int, steps: Sequence[int], most_age: int, open_version: int
) -> list[Group] | None:
    """The `size` complete groups for the batch at `steps[0]`; None if one has to be waited for.

    `steps` are the optimizer steps of this batch and the next ones. A group is due at the last of
    them at which its `lowest` version is at most `most_age` steps old. First finished, first
    chosen, as long as the places that the due groups need in this batch are kept for them: of the
    groups due at one of the first j + 1 batches, all but j·size must be in this one.
    """
    due = [_due(group.lowest(open_version) + most_age, steps) for group in groups]
    needed = [min(size, sum(d <= j for d in due) - j * size) for j in range(len(steps))]
    chosen: list[Group] = []
    for group, latest in sorted(zip(groups, due, strict=True), key=lambda pair: _order(pair[0])):
        left = size - len(chosen)
        if group.finished is None or not left:
            break
        if all(latest <= j or left > need for j, need in enumerate(needed)):
            chosen.append(group)
            needed = [need - (latest <= j) for j, need in enumerate(needed)]
    return chosen if len(chosen) == size else None


def _due(last_step: float, steps: Sequence[int]) -> int:
    """The number of the last batch at or before `last_step`; `len(steps)` for no limit."""
    if math.isinf(last_step):
        return len(steps)
    return max(0, sum(step <= last_step for step in steps) - 1)


def _order(group: Group) -> tuple[bool, int]:
    """Complete groups first, in the order in which they finished."""
    return group.finished is None, group.finished or 0


def sampled_by(rollout: Rollout) -> int | None:
    """The version that sampled a rollout's last action; None if it has none or carries no loss."""
    acted = not rollout.failed and any(episode.steps for episode in rollout.episodes)
    return rollout.policy_version if acted else None
