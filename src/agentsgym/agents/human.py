"""A person at the terminal."""

from collections.abc import Callable
from typing import Any

from agentsgym.types import Message


class HumanAgent:
    """Shows the new messages of the conversation and asks a person for the action.

    `show` receives the text of each new message; `ask` returns a line. A KeyboardInterrupt reaches
    the caller, who can end the game; any other exception fails the rollout.
    """

    def __init__(self, show: Callable[[str], None], ask: Callable[[], str]) -> None:
        self._show = show
        self._ask = ask

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """Show the messages since the last action and read a line; the state counts messages."""
        seen = int(agent_state or 0)
        if len(messages) < seen:
            seen = 0
        for message in messages[seen:]:
            if message["role"] != "assistant":
                self._show(message["content"])
        return self._ask(), len(messages) + 1
