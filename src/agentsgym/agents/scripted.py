"""Agents without a model."""

from collections.abc import Callable, Sequence
from typing import Any

from agentsgym.types import Message

Script = Sequence[str] | Callable[[list[Message]], str]


class ScriptedAgent:
    """Says the given lines in order and then repeats the last one; or calls a function of messages.

    The script starts again with every rollout, but not with every episode of a rollout.
    """

    def __init__(self, script: Script) -> None:
        if not callable(script) and not script:
            raise ValueError("a script needs at least one line")
        self._script = script

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The next line; the state is the number of lines used so far."""
        said = int(agent_state or 0)
        if callable(self._script):
            return self._script(messages), said + 1
        return self._script[min(said, len(self._script) - 1)], said + 1
