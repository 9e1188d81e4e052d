"""The protocol of a place where rollouts are played in the background."""

from collections.abc import Sequence
from typing import Protocol

from agentsgym.types.actions import SamplingParams
from agentsgym.types.engine import WeightUpdate
from agentsgym.types.records import Rollout
from agentsgym.types.rollout_request import RolloutRequest


class RolloutSource(Protocol):
    """Plays requests in the background and hands back each rollout when it is over.

    Requests begin in the order in which they are submitted, and end in any order. A rollout that
    fails comes back with its error; an error that ends the playing itself is raised by the next
    call, after the rollouts that were over before.
    """

    def submit(self, requests: Sequence[RolloutRequest]) -> None:
        """Play these too. Does not wait for any rollout."""
        ...

    def poll(self, timeout: float | None = None) -> list[Rollout]:
        """The rollouts that ended since the last call, in the order in which they ended.

        Waits for at least one while any request is open, `timeout` seconds at most (None: without
        limit). With no request open it returns an empty list.
        """
        ...

    def use_weights(self, update: WeightUpdate) -> None:
        """Let every action that is requested from now on be sampled from these weights; sessions go
        on with them. An action that is being sampled ends with the weights it began with."""
        ...

    def play(self, requests: Sequence[RolloutRequest], sampling: SamplingParams) -> list[Rollout]:
        """Play these to their end, with other sampling settings, and return them in their order;
        what was submitted waits meanwhile. For an evaluation: its weights do not change."""
        ...

    @property
    def idle_seconds(self) -> float:
        """Seconds so far in which nothing could be sampled because there was no request, or because
        the weights were exchanged; the mean if there are several places."""
        ...

    def close(self) -> None:
        """End the playing; open requests are dropped. Ends within seconds, whatever hangs, and may
        be called twice."""
        ...
