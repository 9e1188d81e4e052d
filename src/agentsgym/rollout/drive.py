"""Driving one episode generator by one agent, alone."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

from agentsgym.agents import DirectOutputAgent
from agentsgym.rollout.session import Session
from agentsgym.types import (
    Action,
    ActionRequest,
    Agent,
    EngineAgent,
    GenerationRequest,
    GenerationResult,
    SamplingParams,
    Tokenizer,
    copy_message,
    wait_for,
)
from agentsgym.types.plain import short_repr

T = TypeVar("T")


def is_engine_agent(agent: Any) -> TypeGuard[EngineAgent]:
    """Whether an engine samples this agent's actions (checked by type, so that a mock is not).

    A `DirectOutputAgent` with a `get_action` of its own is asked through that, as text.
    """
    return _has_engine(agent) and not _speaks_for_itself(agent)


def tokenizer_of(agent: Any) -> Tokenizer | None:
    """The tokenizer of the agent's engine, if it has one."""
    return agent.engine.tokenizer if _has_engine(agent) else None


def _has_engine(agent: Any) -> TypeGuard[EngineAgent]:
    return isinstance(getattr(agent, "sampling", None), SamplingParams) and hasattr(agent, "engine")


def _speaks_for_itself(agent: Any) -> bool:
    return isinstance(agent, DirectOutputAgent) and (
        type(agent).get_action is not DirectOutputAgent.get_action or "get_action" in vars(agent)
    )


def drive(generator: Generator[ActionRequest, Action, T], agent: Agent, session: Session) -> T:
    """Run the generator to its end, asking `agent` for every action."""
    action: Action | None = None
    while True:
        try:
            request = next(generator) if action is None else generator.send(action)
        except StopIteration as stop:
            result: T = stop.value
            return result
        action = _ask(agent, request, session)


def _ask(agent: Agent, request: ActionRequest, session: Session) -> Action:
    if is_engine_agent(agent):
        agent.engine.submit([to_generation(request, agent.sampling, None)])
        return to_action(wait_for(agent.engine, request.session_id))
    answer = agent.get_action([copy_message(m) for m in request.messages], session.agent_state)
    try:
        text, session.agent_state = answer
    except (TypeError, ValueError):
        raise TypeError(
            f"get_action must return (action_text, agent_state), got {short_repr(answer)}"
        ) from None
    if not isinstance(text, str):
        raise TypeError(f"get_action must return a str as action, got {type(text).__name__}")
    return Action(text)


def to_generation(
    request: ActionRequest, sampling: SamplingParams, group: int | None
) -> GenerationRequest:
    """The engine's view of a request; the rollout's budget may shorten the action."""
    cap = request.token_cap or sampling.max_tokens
    if request.max_tokens is not None:
        cap = min(cap, request.max_tokens)
    if cap != sampling.max_tokens:
        sampling = replace(sampling, max_tokens=cap)
    return GenerationRequest(
        session_id=request.session_id,
        token_ids=request.context,
        sampling=sampling,
        seed=request.seed,
        sampled_before=request.sampled_before,
        messages=request.messages,
        group=group,
    )


class GenerationError(RuntimeError):
    """The engine could not sample an action."""


def to_action(result: GenerationResult) -> Action:
    """The sampled action. Raises GenerationError where the engine failed."""
    if result.finish_reason in ("error", "cancelled"):
        raise GenerationError(result.error or f"the request was {result.finish_reason}")
    return Action(
        result.text,
        result.token_ids,
        result.logprobs,
        result.finish_reason,
        result.policy_version,
    )
