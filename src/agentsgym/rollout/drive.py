"""An agent plays a session: who is asked, what it may see, and a generator driven to its end."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.known_game import known_play
from agentsgym.rollout.session import FAULTS, Session
from agentsgym.types import (
    Agent,
    EngineAgent,
    GenerationRequest,
    GenerationResult,
    PrivilegedAgent,
    SamplingParams,
    Tokenizer,
    TrialInfo,
    copy_message,
    wait_for,
)
from agentsgym.types.text import short_repr

T = TypeVar("T")


class GenerationError(RuntimeError):
    """The engine could not sample an action."""


def is_engine_agent(agent: Any) -> TypeGuard[EngineAgent]:
    """Whether an engine samples this agent's actions (checked by type, so that a mock is not).

    A `DirectOutputAgent` with its own `get_action` is called through it, as a text agent.
    """
    return _has_engine(agent) and not _speaks_for_itself(agent)


def tokenizer_of(agent: Any) -> Tokenizer | None:
    """The tokenizer of the agent's engine, if it has one."""
    return agent.engine.tokenizer if _has_engine(agent) else None


def sampling_of(agent: Agent) -> SamplingParams:
    """The sampling settings of the agent's engine; unused defaults for a text agent."""
    return agent.sampling if is_engine_agent(agent) else SamplingParams()


def _has_engine(agent: Any) -> TypeGuard[EngineAgent]:
    return isinstance(getattr(agent, "sampling", None), SamplingParams) and hasattr(agent, "engine")


def _speaks_for_itself(agent: Any) -> bool:
    return isinstance(agent, DirectOutputAgent) and (
        type(agent).get_action is not DirectOutputAgent.get_action or "get_action" in vars(agent)
    )


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
        return known_play(self.session.env).admissible_actions(self.session.state)


def agent_for(agent: Agent, session: Session) -> Agent:
    """The agent that plays this session; a `PrivilegedAgent` makes one for each session."""
    if isinstance(agent, PrivilegedAgent):
        return agent.for_session(RunningSession(session))
    return agent


def advance(
    generator: Generator[GenerationRequest, GenerationResult, T],
    answer: GenerationResult | BaseException | None,
) -> GenerationRequest | T:
    """The generator's next request after this answer, or its result if it ends.

    None starts the generator. An exception is raised inside the generator, and an engine's failure
    as a GenerationError; an exception that it does not catch is raised here.
    """
    try:
        if answer is None:
            return next(generator)
        if isinstance(answer, BaseException):
            return generator.throw(answer)
        if answer.finish_reason in ("error", "cancelled"):
            why = answer.error or f"the request was {answer.finish_reason}"
            return generator.throw(GenerationError(why))
        return generator.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def drive(
    generator: Generator[GenerationRequest, GenerationResult, T], agent: Agent, session: Session
) -> T:
    """Run a generator of `session` to its end and request every action from `agent`, or from the
    agent that plays the session for it. The agent's exceptions are raised in the generator."""
    player: Agent | None = None
    try:
        outcome = advance(generator, None)
        while isinstance(outcome, GenerationRequest):
            answer: GenerationResult | BaseException
            try:
                if player is None:
                    player = agent_for(agent, session)
                answer = _ask(player, outcome, session)
            except FAULTS as error:
                answer = error
            outcome = advance(generator, answer)
        return outcome
    finally:
        generator.close()
        # The caller releases the session in the engine of its own agent.
        if player is not None and player is not agent and is_engine_agent(player):
            player.engine.release([session.session_id])


def _ask(agent: Agent, request: GenerationRequest, session: Session) -> GenerationResult:
    if is_engine_agent(agent):
        if session.sampling != agent.sampling:
            # Another agent plays this session than the one whose settings the request has.
            session.sampling = agent.sampling
            request = session.ask(session.asked_for)
        agent.engine.submit([request])
        return wait_for(agent.engine, request.session_id)
    answer = agent.get_action([copy_message(m) for m in request.messages], session.agent_state)
    try:
        text, session.agent_state = answer
    except (TypeError, ValueError):
        raise TypeError(
            f"get_action must return (action_text, agent_state), got {short_repr(answer)}"
        ) from None
    if not isinstance(text, str):
        raise TypeError(f"get_action must return a str as action, got {type(text).__name__}")
    return GenerationResult.of_text(text, request.session_id)
