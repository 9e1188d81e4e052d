"""What an agent may know of the session that it plays, beyond the conversation.

Some agents need more than an agent is told: a planner needs the game, a random player what is
admissible now. Such an agent defines `seated(seat) -> Agent`; who plays a session gives it the
session's seat, and asks the agent that it returns instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from agentsgym.rollout.session import Session
from agentsgym.types import Agent

if TYPE_CHECKING:
    from agentsgym.envs.base import MultistepEnv


@dataclass(frozen=True, slots=True)
class Seat:
    """One session of the environment `env`, as it stands whenever it is asked.

    `holder` knows the session's state: `env` itself, or its stand-in where the state is in a
    worker process.
    """

    env: "MultistepEnv"
    session: Session
    holder: "MultistepEnv"

    @property
    def task_data(self) -> Mapping[str, Any]:
        """The task that is played."""
        return self.session.task_data

    @property
    def said(self) -> tuple[str, ...]:
        """The actions of the running episode."""
        return tuple(step.action for step in self.session.steps if step.kind == "action")

    @property
    def episode_is_over(self) -> bool:
        """Whether the environment is done with the episode."""
        return any(step.done for step in self.session.steps)

    def admissible_actions(self) -> Sequence[str] | None:
        """What the environment admits now; None where it lists nothing."""
        state = self.holder.active_states[self.session.session_id]
        return self.holder.admissible_actions(state)


class SeatedAgent(Agent, Protocol):
    """An agent that wants a seat."""

    def seated(self, seat: Seat) -> Agent:
        """The agent of one session. It may be asked for again with each of its episodes, so what
        it remembers belongs into the agent state."""
        ...


def take_seat(agent: Agent, env: "MultistepEnv", session: Session) -> Agent:
    """The agent as it plays this session."""
    return agent.seated(env._seat(session)) if _wants_seat(agent) else agent


def _wants_seat(agent: Agent) -> TypeGuard[SeatedAgent]:
    return hasattr(type(agent), "seated")  # of the type: a mock has every attribute
