"""Branches in training: which rollouts of a group they are, and which actions they replace.

Where branches leave a trunk depends on what it had done until then, and on earlier generations, but
never on what it did from there on; otherwise the estimator "branch" would be biased.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import bare_row
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.ranks import Ranks
from agentsgym.types import Rollout, RolloutRequest, session_seed

Play = Callable[[Sequence[RolloutRequest]], list[Rollout]]
Entropies = Callable[[Sequence[Rollout]], list[list[float]]]


class BranchPlan:
    """Of the requests of each group every (branches + 1)-th one is a trunk, and those after it play
    on from it: instead of an action that `branch_where` selects, or from the beginning where it
    selects none. A trunk that failed has no branches, its requests are played as they are.

    `entropies` gives the entropy of the policy before each answer of rollouts. What is known of
    earlier generations is in the dict that `kept` gives, which checkpoints hold.
    """

    def __init__(
        self,
        args: GRPOEnvConfig,
        ranks: Ranks,
        kept: Callable[[], dict[str, Any]],
        entropies: Entropies,
    ) -> None:
        self._size: int = args.branches + 1
        self._where = args.branch_where
        self._trunks: int = args.num_generations // self._size
        self._ranks = ranks
        self._kept = kept
        self._entropies = entropies
        self._measured: list[float] = []

    def trunks(self, requests: Sequence[RolloutRequest]) -> Sequence[RolloutRequest]:
        """Those of whole groups that are played first."""
        return requests[:: self._size]

    def play(self, requests: Sequence[RolloutRequest], play: Play) -> list[Rollout]:
        """The rollouts of whole groups, in their order; `play` is called for the trunks, then for
        the branches."""
        trunks = play(self.trunks(requests))
        if self._size == 1:
            return trunks
        size, numbers = self._size, self._numbers(trunks)
        asked = [
            _left(trunks[k // size], numbers[k // size], request)
            for k, request in enumerate(requests)
            if k % size
        ]
        later = iter(play(asked))
        return [next(later) if k % size else trunks[k // size] for k in range(len(requests))]

    def learn(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Take in a generation's rollouts; all ranks must call it. Returns figures to log: the
        share of branches that left their trunk after an action, and over all ranks the actions of
        the policy, and those that branches repeated."""
        if self._size == 1:
            return {}
        replayed = sum(one.replayed for one in rollouts)
        steps = sum(len(one.steps) for one in rollouts)
        left = sum(one.replayed > 0 for one in rollouts)
        lengths = [len(one.steps) for one in rollouts[:: self._size] if not one.failed]
        own: list[float] = [left, steps - replayed, replayed, sum(lengths), len(lengths)]
        own += [sum(self._measured), len(self._measured)]
        sums = np.array(self._ranks.gather([own])).sum(axis=0).tolist()
        self._kept().update(length=sums[3] / max(sums[4], 1), entropy=sums[5] / max(sums[6], 1))
        asked = len(rollouts) * self._ranks.world_size * (self._size - 1) / self._size
        names = ("branches/share", "branches/steps", "branches/replayed_steps")
        return dict(zip(names, (sums[0] / asked, sums[1], sums[2]), strict=True))

    def _numbers(self, trunks: Sequence[Rollout]) -> list[int]:
        """The number of the answer that branches replace, for each trunk; 0: they are played from
        the beginning."""
        if self._where == "entropy":
            return self._unsure(trunks)
        last = self._kept().get("length", 2.0) - 1 if self._where == "even" else 1.0
        numbers = [1 + int(self._place(trunk) * max(last, 1.0)) for trunk in trunks]
        lengths = [len(trunk.steps) for trunk in trunks]
        return [n if n < length else 0 for n, length in zip(numbers, lengths, strict=True)]

    def _place(self, trunk: Rollout) -> float:
        """A number in [0, 1) that is uniform over the seeds, and spread over a group's trunks."""
        if self._where == "first":
            return 0.0
        return (trunk.index // self._size + _noise(trunk, 0)) / self._trunks

    def _unsure(self, trunks: Sequence[Rollout]) -> list[int]:
        """Each answer after the first one is taken with a probability in proportion to the entropy
        there, so that in the mean it is that in the middle of a rollout."""
        known, every = self._kept(), self._entropies(trunks)
        self._measured = [value for own in every for value in own[1:]]
        scale = known.get("entropy", 0.0) * max(known.get("length", 1.0) / 2, 1.0)
        return [
            next((k for k in range(1, len(own)) if own[k] >= scale * _noise(trunk, k)), 0)
            for trunk, own in zip(trunks, every, strict=True)
        ]


def _noise(trunk: Rollout, number: int) -> float:
    return session_seed(trunk.seed, "branch", number) / 2**63


def _left(trunk: Rollout, number: int, request: RolloutRequest) -> RolloutRequest:
    """The request as a branch of its trunk."""
    if trunk.failed or not trunk.steps:
        return request
    made = RolloutRequest.branch(trunk, number, request.index, request.seed)
    return replace(request, session_id=made.session_id, prefix=made.prefix)


@torch.no_grad()
def first_entropies(
    scorer: Scorer, rollouts: Sequence[Rollout], model: nn.Module
) -> list[list[float]]:
    """The entropy (nats) of the policy at the first token of each answer, which depends on nothing
    of it, in the order of play; 0 where none was a choice. All ranks must call it."""
    found: dict[tuple[str, tuple[int, int]], float] = {}
    rows = []
    for rollout in rollouts:
        for row in [] if rollout.failed else rollout.rows:
            made = bare_row(row.token_ids, row.spans, rollout.session_id)
            made.supports = row.supports
            rows.append(made)
    for layout in scorer.layouts(rows, model):
        with scorer.reading(model, layout):
            scores = scorer.forward(model, layout)
        if scores.entropy is None:
            raise ValueError("branch_where='entropy' needs a model whose head says its entropy")
        left = iter(scores.entropy.tolist())
        for read in layout.rows:
            for span, places in zip(read.spans, read.places, strict=True):
                values = [next(left) for _ in places]
                found[read.session_id, span.key] = values[0] if values else 0.0
    return [
        [
            found.get((rollout.session_id, (episode.index, step.index)), 0.0)
            for episode in rollout.episodes
            for step in episode.steps
        ]
        for rollout in rollouts
    ]
