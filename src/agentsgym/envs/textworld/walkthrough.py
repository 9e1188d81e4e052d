"""The generator's walkthrough as an agent: it wins any TextWorld task."""

from typing import TYPE_CHECKING, Any

from agentsgym.envs.textworld.env import TextWorldEnv
from agentsgym.types import Agent, Message

if TYPE_CHECKING:
    from agentsgym.rollout.seat import Seat


class WalkthroughAgent:
    """Gives the walkthrough's commands in order, then "look" forever.

    It only counts its own commands, so it cannot continue a game that another agent began.
    """

    def seated(self, seat: "Seat") -> Agent:
        """The player of one game."""
        return _Seated(seat)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """Raises LookupError: messages alone do not identify the game."""
        raise LookupError("a WalkthroughAgent needs a seat in a session: play it with run_trial")


class _Seated:
    def __init__(self, seat: "Seat") -> None:
        if not isinstance(seat.env, TextWorldEnv):
            raise TypeError(f"a WalkthroughAgent plays TextWorld, not {seat.env.name}")
        self._seat = seat
        self._commands = seat.env.walkthrough(seat.task_data)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The walkthrough's next command."""
        said = len(self._seat.said)
        return (self._commands[said] if said < len(self._commands) else "look"), None
