"""Driving one episode generator by one agent, alone."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

from agentsgym.envs.session import Session
from agentsgym.types import (
    Action,
    ActionRequest,
    Agent,
    EngineAgent,
    GenerationRequest,
    GenerationResult,
    SamplingParams,
    wait_for,
)

T = TypeVar("T")


def is_engine_agent(agent: Any) -> TypeGuard[EngineAgent]:
    """Whether an engine samples this agent's actions (checked by type, so that a mock is not)."""
    return isinstance(getattr(agent, "sampling", None), SamplingParams) and hasattr(agent, "engine")


def drive(generator: Generator[ActionRequest, Action, T], agent: Agent, session: Session) -> T:
    """Run the generator to its end, asking `agent` for every action."""
    try:
        request = next(generator)
        while True:
            request = generator.send(_ask(agent, request, session))
    except StopIteration as stop:
        result: T = stop.value
        return result


def _ask(agent: Agent, request: ActionRequest, session: Session) -> Action:
    if is_engine_agent(agent):
        agent.engine.submit([to_generation(request, agent.sampling, None)])
        return to_action(wait_for(agent.engine, request.session_id))
    answer = agent.get_action([*request.messages], session.agent_state)
    try:
        text, session.agent_state = answer
    except (TypeError, ValueError):
        raise TypeError(
            f"get_action must return (action_text, agent_state), got {answer!r}"
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
