"""An agent with noise of its own, which an evaluation seeds anew for each rollout."""

from collections.abc import Callable

from agentsgym.types import Agent, PrivilegedAgent, SessionView


class SeededAgent(PrivilegedAgent):
    """The agent `make(seed)`.

    An evaluation plays each rollout with `with_seed` and the rollout's own seed, so that a rollout
    depends neither on the others nor on their order.
    """

    def __init__(self, make: Callable[[int], Agent], *, seed: int = 0) -> None:
        self._make = make
        self._agent = make(seed)

    def with_seed(self, seed: int) -> Agent:
        """A new agent with this seed."""
        return self._make(seed)

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session; its noise also depends on the sessions before."""
        if isinstance(self._agent, PrivilegedAgent):
            return self._agent.for_session(session)
        return self._agent
