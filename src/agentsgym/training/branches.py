"""Branches in training: which rollouts of a group they are, and which actions they replace.

Where branches leave a trunk depends on its seed and on earlier generations, but never on what it
did; otherwise the estimator "branch" would be biased.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.ranks import Ranks
from agentsgym.types import Rollout, RolloutRequest, session_seed

Play = Callable[[Sequence[RolloutRequest]], list[Rollout]]


class BranchPlan:
    """Of the requests of each group every (branches + 1)-th one is a trunk, and those after it play
    on from it: instead of an action that `branch_where` selects, or from the beginning where it
    selects none. A trunk that failed has no branches, its requests are played as they are.

    The mean length of earlier trunks is in the dict that `kept` gives, which checkpoints hold.
    """

    def __init__(
        self, args: GRPOEnvConfig, ranks: Ranks, kept: Callable[[], dict[str, Any]]
    ) -> None:
        self._size: int = args.branches + 1
        self._even = args.branch_where == "even"
        self._trunks: int = args.num_generations // self._size
        self._ranks = ranks
        self._kept = kept

    def trunks(self, requests: Sequence[RolloutRequest]) -> Sequence[RolloutRequest]:
        """Those of whole groups that are played first."""
        return requests[:: self._size]

    def play(self, requests: Sequence[RolloutRequest], play: Play) -> list[Rollout]:
        """The rollouts of whole groups, in their order; `play` is called for the trunks, then for
        the branches."""
        trunks = play(self.trunks(requests))
        if self._size == 1:
            return trunks
        size = self._size
        asked = [
            self._left(trunks[k // size], request) for k, request in enumerate(requests) if k % size
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
        own = [left, steps - replayed, replayed, sum(lengths), len(lengths)]
        sums = np.array(self._ranks.gather([own])).sum(axis=0).tolist()
        self._kept()["length"] = sums[3] / max(sums[4], 1)
        asked = len(rollouts) * self._ranks.world_size * (self._size - 1) / self._size
        names = ("branches/share", "branches/steps", "branches/replayed_steps")
        return dict(zip(names, (sums[0] / asked, sums[1], sums[2]), strict=True))

    def _number(self, trunk: Rollout) -> int:
        """The number of the answer that branches replace; 0: they are played from the beginning.
        With "even" it is uniform over the seeds, and spread over a group's trunks."""
        number = 1
        if self._even:
            noise = session_seed(trunk.seed, "branch", 0) / 2**63
            place = (trunk.index // self._size + noise) / self._trunks
            number += int(place * max(self._kept().get("length", 2.0) - 1, 1.0))
        return number if number < len(trunk.steps) else 0

    def _left(self, trunk: Rollout, request: RolloutRequest) -> RolloutRequest:
        """The request as a branch of its trunk."""
        if trunk.failed or not trunk.steps:
            return request
        made = RolloutRequest.branch(trunk, self._number(trunk), request.index, request.seed)
        return replace(request, session_id=made.session_id, prefix=made.prefix)
