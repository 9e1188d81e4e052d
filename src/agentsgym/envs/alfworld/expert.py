"""The planner as an agent: it plays any ALFWorld task to the win, for games to learn from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.alfworld.env import ALFWorldEnv, live_environments
from agentsgym.types import Message


@dataclass(frozen=True, slots=True)
class _Course:
    """What the expert has in mind: the commands said and those still to say."""

    said: tuple[str, ...]
    ahead: tuple[str, ...]


class ExpertAgent:
    """Plays the planner's commands.

    A conversation does not tell which game it is, so the expert finds the running session that it
    belongs to among the environments of this process. Where others gave commands before, it plans
    anew from there.

    Args:
        envs: where to look for sessions first; all ALFWorld environments otherwise.
    """

    def __init__(self, *envs: ALFWorldEnv) -> None:
        self._envs = envs

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The planner's next command ("look" where it has none left).

        Raises LookupError for a conversation that belongs to no running ALFWorld session.
        """
        said = tuple(m["content"] for m in messages if m["role"] == "assistant")
        course = agent_state
        if not isinstance(course, _Course) or course.said != said:
            course = _Course(said, self._plan(messages, said))
        command = course.ahead[0] if course.ahead else "look"
        action = self._session(messages)[0].spoken(command)
        return action, _Course((*said, action), course.ahead[1:])

    def _plan(self, messages: list[Message], said: Sequence[str]) -> tuple[str, ...]:
        from agentsgym.envs.alfworld.engine import Game

        env, task_data = self._session(messages)
        if not said:
            return env.expert_plan(task_data)
        game = Game(env.game_file(task_data))
        for action in said:
            command = env.command(action)
            if command in game.view.commands:
                game.step(command)
        return game.plan()

    def _session(self, messages: list[Message]) -> tuple[ALFWorldEnv, Any]:
        for env in self._candidates():
            for session in env._open_sessions.values():
                if session.messages == messages:
                    return env, session.task_data
        raise LookupError("the expert knows only conversations of running ALFWorld sessions")

    def _candidates(self) -> Iterable[ALFWorldEnv]:
        yield from self._envs
        yield from live_environments()
