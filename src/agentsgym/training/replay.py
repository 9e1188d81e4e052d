"""Groups with signal that are trained on again in place of groups without.

A replayed group keeps its advantages, which depend on nothing outside of it, and the sampler's
log-probabilities: like a rollout that was played ahead, it is corrected by `sampler_correction`.
"""

from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import torch

from agentsgym.training.loss.batch import TrainRollout, TrainRow
from agentsgym.types import Rollout, StepSpan
from agentsgym.types.supports import Supports

Group = tuple[int, list[TrainRollout]]
"""A generation's number and rollouts of it, as they were before any update."""


class ReplayBuffer:
    """The groups with signal of the last `max_age` generations, on this rank; `size` is the number
    of a group's rollouts."""

    def __init__(self, size: int, max_age: int) -> None:
        self._size = size
        self._max_age = max_age
        self._groups: list[Group] = []  # the newest first

    def fill(
        self, rollouts: Sequence[TrainRollout], generation: int
    ) -> tuple[list[TrainRollout], list[int]]:
        """The rollouts, with each group that is not in the loss replaced by a stored one, the
        newest first, each at most once, and the ages of these in generations. Then stores the
        groups of this generation."""
        ages = range(1, self._max_age + 1)
        stored = [group for group in self._groups if generation - group[0] in ages]
        filled: list[TrainRollout] = []
        replayed: list[int] = []
        fresh: list[Group] = []
        for start in range(0, len(rollouts), self._size):
            own = rollouts[start : start + self._size]
            if any(rollout.in_loss for rollout in own):
                fresh.append((generation, [*map(_bare, own)]))
            elif len(replayed) < len(stored):
                number, many = stored[len(replayed)]
                replayed.append(generation - number)
                own = [replace(_bare(rollout), replayed=True) for rollout in many]
            filled += own
        self._groups = fresh + stored
        return filled, replayed

    def save(self, file: Path) -> None:
        """Store the groups, as tensors and plain values."""
        torch.save([[number, [*map(_as_plain, many)]] for number, many in self._groups], file)

    def load(self, file: Path) -> None:
        """Take the groups that `save` stored, if it stored some."""
        if file.is_file():
            stored = torch.load(file, weights_only=True)
            self._groups = [(number, [*map(_from_plain, many)]) for number, many in stored]


def _bare(rollout: TrainRollout) -> TrainRollout:
    """A copy without what training added, and without texts."""
    whole = rollout.played
    played = Rollout(whole.session_id, whole.group, whole.index, "", {}, {}, (), error=whole.error)
    rows = [replace(row, weights={}, logps={}, rollout_log_ratio=(0.0, 0)) for row in rollout.rows]
    return TrainRollout(played, rows, rollout.in_loss)


_TENSORS = "token_ids", "logprobs", "advantages"


def _as_plain(rollout: TrainRollout) -> list[Any]:
    played = rollout.played
    rows = [
        [list(map(astuple, row.spans)), row.sampled]
        + [torch.tensor(getattr(row, name)) for name in _TENSORS]
        + [torch.tensor(getattr(row.supports, name)) for name in Supports.__match_args__]
        for row in rollout.rows
    ]
    return [played.session_id, played.group, played.index, played.error, rollout.in_loss, rows]


def _from_plain(values: Sequence[Any]) -> TrainRollout:
    session, group, index, error, in_loss, rows = values
    made = []
    for spans, sampled, *tensors in rows:
        ids, logprobs, advantages, *supports = (tensor.numpy() for tensor in tensors)
        own = tuple(StepSpan(*span) for span in spans)
        row = TrainRow(ids, logprobs, advantages, own, sampled, session)
        row.supports = Supports(*supports)
        made.append(row)
    played = Rollout(session, group, index, "", {}, {}, (), error=error)
    return TrainRollout(played, made, in_loss)
