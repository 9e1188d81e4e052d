"""The planner as an agent: it wins any ALFWorld task, as a teacher for imitation."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsgym.envs.alfworld.env import ALFWorldEnv
from agentsgym.types import Agent, Message

if TYPE_CHECKING:
    from agentsgym.rollout.seat import Seat


@dataclass(frozen=True, slots=True)
class _Course:
    """The expert's state: the commands given so far and the rest of its plan."""

    said: tuple[str, ...]
    ahead: tuple[str, ...]


class ExpertAgent:
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

    def seated(self, seat: "Seat") -> Agent:
        """The player of one game."""
        return _Seated(seat, self._detours, self._rng)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """Raises LookupError: messages alone do not identify the game."""
        raise LookupError("an ExpertAgent needs a seat in a session: play it with run_trial")


class _Seated:
    def __init__(self, seat: "Seat", detours: float, rng: random.Random) -> None:
        if not isinstance(seat.env, ALFWorldEnv):
            raise TypeError(f"an ExpertAgent plays ALFWorld, not {seat.env.name}")
        self._env = seat.env
        self._seat = seat
        self._detours = detours
        self._rng = rng

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """The planner's next command ("look" if no command is left)."""
        env, task_data, said = self._env, self._seat.task_data, self._seat.said
        if self._detours and self._rng.random() < self._detours:
            commands = _game(env, task_data, said).view.commands
            return env.spoken(self._rng.choice(commands)), None
        course = agent_state
        if not isinstance(course, _Course) or course.said != said:
            course = _Course(said, _plan(env, task_data, said))
        action = env.spoken(course.ahead[0] if course.ahead else "look")
        return action, _Course((*said, action), course.ahead[1:])


def _plan(env: ALFWorldEnv, task_data: Any, said: Sequence[str]) -> tuple[str, ...]:
    if not said:
        return env.expert_plan(task_data)
    plan: tuple[str, ...] = _game(env, task_data, said).plan()
    return plan


def _game(env: ALFWorldEnv, task_data: Any, said: Sequence[str]) -> Any:
    """The game after these commands, in this process."""
    from agentsgym.envs.alfworld.engine import Game

    game = Game(env.game_file(task_data))
    for action in said:
        command = env.command(action)
        if command in game.view.commands:
            game.step(command)
    return game
