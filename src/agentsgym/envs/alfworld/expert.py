"""The planner as an agent: it wins any ALFWorld task, as a teacher for imitation."""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView


class Household(ABC):
    """What the expert needs of an environment."""

    @abstractmethod
    def expert_plan(self, task_data: Mapping[str, Any]) -> tuple[str, ...]:
        """The planner's commands that win a task; empty if it finds none."""

    @abstractmethod
    def game_file(self, task_data: Mapping[str, Any]) -> str:
        """The path of a task's game."""

    @abstractmethod
    def command(self, action: str, commands: Sequence[str]) -> str | None:
        """The command out of `commands` in an action; None without one."""

    @abstractmethod
    def spoken(self, command: str) -> str:
        """A command as an action."""


@dataclass(frozen=True, slots=True)
class _Course:
    """The expert's state: the commands given so far and the rest of its plan."""

    said: tuple[str, ...]
    ahead: tuple[str, ...]


class ExpertAgent(PrivilegedAgent):
    """Plays the planner's commands.

    It makes a new plan after a command that was not in its plan: its own detour or another agent's
    command.

    Args:
        detours: probability at each step of a random admissible command instead of the planned one.
        seed: the seed of the detours.
    """

    def __init__(self, *, detours: float = 0.0, seed: int = 0) -> None:
        self._detours = detours
        self._rng = random.Random(seed)

    def for_session(self, session: SessionView) -> Agent:
        """The player of one game."""
        return _ExpertPlayer(session, self._detours, self._rng)


class _ExpertPlayer:
    def __init__(self, session: SessionView, detours: float, rng: random.Random) -> None:
        if not isinstance(session.env, Household):
            raise TypeError(f"an ExpertAgent plays ALFWorld, not {session.env.name}")
        self._env = session.env
        self._session = session
        self._detours = detours
        self._rng = rng

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The planner's next command ("look" if no command is left)."""
        env, task_data, said = self._env, self._session.task_data, self._session.actions
        if self._detours and self._rng.random() < self._detours:
            commands = _game(env, task_data, said).view.commands
            return env.spoken(self._rng.choice(commands)), None
        course = agent_state
        if not isinstance(course, _Course) or course.said != said:
            course = _Course(said, _plan(env, task_data, said))
        action = env.spoken(course.ahead[0] if course.ahead else "look")
        return action, _Course((*said, action), course.ahead[1:])


def _plan(env: Household, task_data: Any, said: Sequence[str]) -> tuple[str, ...]:
    if not said:
        return env.expert_plan(task_data)
    plan: tuple[str, ...] = _game(env, task_data, said).plan()
    return plan


def _game(env: Household, task_data: Any, said: Sequence[str]) -> Any:
    """The game after these commands, in this process."""
    from agentsgym.envs.alfworld.engine import Game

    game = Game(env.game_file(task_data))
    for action in said:
        command = env.command(action, game.view.commands)
        if command is not None:
            game.step(command)
    return game
