"""Agents that use more than the conversation of their session."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentsgym.types.actions import Message
from agentsgym.types.protocols import Agent
from agentsgym.types.trial_info import TrialInfo


class SessionView(Protocol):
    """A read-only view of one session; every access returns its current state."""

    @property
    def env(self) -> Any:
        """The environment (a `MultistepEnv`): its configuration and its planner.
        The state of the session may be in a worker process."""
        ...

    @property
    def task_data(self) -> Mapping[str, Any]:
        """The session's task."""
        ...

    @property
    def trial(self) -> TrialInfo:
        """The running episode's position in its trial, without `last_state`."""
        ...

    @property
    def actions(self) -> tuple[str, ...]:
        """The agent's actions in the running episode."""
        ...

    @property
    def episode_is_over(self) -> bool:
        """Whether the current request is for a reflection on the episode."""
        ...

    def admissible_actions(self) -> Sequence[str] | None:
        """The environment's `admissible_actions` in the current state."""
        ...


class PrivilegedAgent(ABC):
    """An agent that needs more than the conversation, for instance the task or the number of the
    episode. `for_session` returns the agent that plays a given session."""

    @abstractmethod
    def for_session(self, session: SessionView) -> Agent:
        """The agent that plays this session. It is called for every episode and reflection, so an
        agent that remembers data keeps it in its agent state."""

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """Raises LookupError: this agent plays sessions, not conversations."""
        raise LookupError(
            f"{type(self).__name__} needs a session, not only its messages: play it with run_trial"
        )
