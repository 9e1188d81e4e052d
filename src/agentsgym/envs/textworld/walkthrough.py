"""The generator's walkthrough as an agent: it plays any TextWorld task to the win."""

from typing import Any

from agentsgym.envs.open_sessions import session_of
from agentsgym.envs.textworld.env import TextWorldEnv
from agentsgym.types import Message


class WalkthroughAgent:
    """Says the walkthrough's commands in order, "look" for ever after.

    It finds the running session that a conversation belongs to among the environments of this
    process, and goes by the number of commands said: it cannot take over another's game.

    Args:
        envs: where to look for sessions first; all TextWorld environments otherwise.
    """

    def __init__(self, *envs: TextWorldEnv) -> None:
        self._envs = envs

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The walkthrough's next command.

        Raises LookupError for a conversation that belongs to no running TextWorld session.
        """
        env, session = session_of(messages, TextWorldEnv, self._envs)
        commands = env.walkthrough(session.task_data)
        said = len(session.steps)
        return (commands[said] if said < len(commands) else "look"), None
