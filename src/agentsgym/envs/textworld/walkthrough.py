"""The generator's walkthrough as an agent: it wins any TextWorld task."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView


class HasWalkthrough(ABC):
    """An environment that knows commands that win its tasks."""

    @abstractmethod
    def walkthrough(self, task_data: Mapping[str, Any]) -> tuple[str, ...]:
        """The commands that win a task; empty if none are known."""


class WalkthroughAgent(PrivilegedAgent):
    """Gives the walkthrough's commands in order, then "look" forever.

    It only counts its own commands, so it cannot continue a game that another agent began.
    """

    def for_session(self, session: SessionView) -> Agent:
        """The player of one game."""
        return _WalkthroughPlayer(session)


class _WalkthroughPlayer:
    def __init__(self, session: SessionView) -> None:
        if not isinstance(session.env, HasWalkthrough):
            raise TypeError(f"a WalkthroughAgent plays TextWorld, not {session.env.name}")
        self._session = session
        self._commands = session.env.walkthrough(session.task_data)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The walkthrough's next command."""
        said = len(self._session.actions)
        return (self._commands[said] if said < len(self._commands) else "look"), None
