"""The view of a running session for a `PrivilegedAgent`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.session import Session
from agentsgym.types import Agent, PrivilegedAgent, TrialInfo


@dataclass(frozen=True, slots=True)
class RunningSession:
    """A `SessionView`. The session's state is in its environment, or in the environment's
    representative if it is played in a worker process."""

    session: Session

    @property
    def env(self) -> MultistepEnv:
        """The environment that is played."""
        return self.session.env.unwrapped

    @property
    def task_data(self) -> Mapping[str, Any]:
        """The task that is played."""
        return self.session.task_data

    @property
    def trial(self) -> TrialInfo:
        """Where the running episode stands in its trial."""
        return self.session.trial

    @property
    def actions(self) -> tuple[str, ...]:
        """The agent's actions in the running episode."""
        return tuple(step.action for step in self.session.steps if step.kind == "action")

    @property
    def episode_is_over(self) -> bool:
        """Whether the agent is now asked for a reflection on the episode."""
        return self.session.asked_for == "reflection"

    def admissible_actions(self) -> Sequence[str] | None:
        """The admissible actions in the current state; None if the environment lists none."""
        return self.session.env.admissible_actions(self.session.state)


def agent_for(agent: Agent, session: Session) -> Agent:
    """The agent that plays this session; a `PrivilegedAgent` makes one for each session."""
    if isinstance(agent, PrivilegedAgent):
        return agent.for_session(RunningSession(session))
    return agent
