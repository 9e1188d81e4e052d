"""Drives the generator of one session with one agent; and `MultistepEnv._run_complete_episode`: its
default, and what a trial does with its result.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

import numpy as np

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs.base import MultistepEnv, overrides
from agentsgym.rollout.episode import EpisodeGenerator, play_episode, score_weight, with_reward
from agentsgym.rollout.session import Session, SessionError
from agentsgym.rollout.trial import EpisodePlayer, play_trial
from agentsgym.tokens import DraftRow
from agentsgym.types import (
    Agent,
    EngineAgent,
    Episode,
    GenerationRequest,
    GenerationResult,
    Message,
    PrivilegedAgent,
    Rollout,
    RolloutRequest,
    Row,
    SamplingParams,
    Step,
    StepSpan,
    Tokenizer,
    copy_message,
    wait_for,
)
from agentsgym.types.foreign import checked_number
from agentsgym.types.records import Floats
from agentsgym.types.reward_placement import place_rewards
from agentsgym.types.text import clean_text, short_repr

T = TypeVar("T")
_LISTS = ("full_token_ids", "agent_token_mask", "per_token_rewards")


OnRollout = Callable[[Rollout], None]
"""Called with each rollout as soon as it is over."""


class GenerationError(RuntimeError):
    """The engine could not sample an action."""


def is_engine_agent(agent: Any) -> TypeGuard[EngineAgent]:
    """Whether an engine samples this agent's actions (checked by type, so that a mock is not).

    A `DirectOutputAgent` with its own `get_action` is called through it, as a text agent.
    """
    return _has_engine(agent) and not _overrides_get_action(agent)


def tokenizer_of(agent: Any) -> Tokenizer | None:
    """The tokenizer of the agent's engine, if it has one."""
    return agent.engine.tokenizer if _has_engine(agent) else None


def sampling_of(agent: Agent) -> SamplingParams:
    """The sampling settings of the agent's engine; unused defaults for a text agent."""
    return agent.sampling if is_engine_agent(agent) else SamplingParams()


def _has_engine(agent: Any) -> TypeGuard[EngineAgent]:
    return isinstance(getattr(agent, "sampling", None), SamplingParams) and hasattr(agent, "engine")


def _overrides_get_action(agent: Any) -> bool:
    return isinstance(agent, DirectOutputAgent) and (
        type(agent).get_action is not DirectOutputAgent.get_action or "get_action" in vars(agent)
    )


def agent_for(agent: Agent, session: Session) -> Agent:
    """The agent that plays this session; a `PrivilegedAgent` makes one for each session."""
    if isinstance(agent, PrivilegedAgent):
        return agent.for_session(session)
    return agent


def advance(
    generator: Generator[GenerationRequest, GenerationResult, T],
    result: GenerationResult | BaseException | None,
) -> GenerationRequest | T:
    """The generator's next request after this result, or what it returns if it ends.

    None starts the generator. An exception is raised inside the generator, and an engine's failure
    as a GenerationError; an exception that it does not catch is raised here.
    """
    try:
        if result is None:
            return next(generator)
        if isinstance(result, BaseException):
            return generator.throw(result)
        if result.finish_reason == "error":
            return generator.throw(GenerationError(result.error))
        return generator.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


def drive(
    generator: Generator[GenerationRequest, GenerationResult, T], agent: Agent, session: Session
) -> T:
    """Run a generator of `session` to its end and request every action from `agent`, or from the
    agent that plays the session for it. The agent's exceptions are raised in the generator."""
    player: Agent | None = None
    try:
        outcome = advance(generator, None)
        while isinstance(outcome, GenerationRequest):
            result: GenerationResult | BaseException
            try:
                if player is None:
                    player = agent_for(agent, session)
                result = _result_of(player, outcome, session)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                result = error
            outcome = advance(generator, result)
        return outcome
    finally:
        generator.close()
        # The caller releases the session in the engine of its own agent.
        if player is not None and player is not agent and is_engine_agent(player):
            player.engine.release([session.session_id])


def _result_of(agent: Agent, request: GenerationRequest, session: Session) -> GenerationResult:
    if is_engine_agent(agent):
        if session.sampling != agent.sampling:
            # Another agent plays this session than the one whose settings the request has.
            session.sampling = agent.sampling
            request = session.request_action(session.action_kind)
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


def play_alone(
    env: MultistepEnv, request: RolloutRequest, agent: Agent, on_rollout: OnRollout | None = None
) -> Rollout:
    """One trial, episode by episode, for an agent that only has `get_action` or an environment that
    plays its episodes in its own way."""
    session = Session(env, request, sampling_of(agent))
    try:
        rollout = drive(play_trial(session, complete_episodes(agent)), agent, session)
    finally:
        if is_engine_agent(agent):
            agent.engine.release([session.session_id])
    if on_rollout is not None:
        on_rollout(rollout)
    return rollout


# -- whole episodes ------------------------------------------------------------------------------


def plays_episodes(env: MultistepEnv) -> bool:
    """Whether an environment overrides `_run_complete_episode`, which must then be called."""
    return overrides(env, "_run_complete_episode")


def complete_episodes(agent: Agent) -> EpisodePlayer:
    """Plays episodes by calling the environment's `_run_complete_episode`, which asks `agent`. The
    rewards that it returns count. If an override only returns the specification's five keys, the
    steps are the runs of agent tokens."""

    def play(session: Session) -> EpisodeGenerator:
        yield from ()  # a player is a generator, but this one's actions are requested in `drive`
        env, session_id = session.env, session.session_id
        env.active_sessions[session_id] = session  # the method only gets the session's id
        try:
            record = env._run_complete_episode(session_id, agent)
        finally:
            del env.active_sessions[session_id]
        return _episode_of(session, record)

    return play


def run_complete_episode(env: MultistepEnv, session_id: str, agent: Agent) -> dict[str, Any]:
    """Play the episode whose state is `env.active_states[session_id]` to its end."""
    session = env.active_sessions.get(session_id) or _lone_session(env, session_id)
    session.sampling = sampling_of(agent)
    first_row = len(session.transcript.rows)
    episode = drive(play_episode(session), agent, session)
    return _record_of(session, episode, first_row)


def _lone_session(env: MultistepEnv, session_id: str) -> Session:
    request = RolloutRequest(env.class_path, env.env_config, {}, 0, 0, 0, session_id)
    return Session(env, request)


def _record_of(session: Session, episode: Episode, first_row: int) -> dict[str, Any]:
    goes_on = session.episode > 0 and session.env.config.carry == "full"
    rows = session.transcript.rows[first_row - 1 if goes_on and first_row else first_row :]
    ids = list(rows[-1].token_ids) if rows else []
    return {
        "full_token_ids": ids,
        "full_attention_mask": [1] * len(ids),
        "agent_token_mask": _mask(rows[-1]) if rows else [],
        "per_token_rewards": _placed(session, episode, rows[-1]).tolist() if rows else [],
        "final_reward": episode.reward,
        "final_completion_messages": [copy_message(m) for m in session.messages],
        "episode": episode,
    }


def _episode_of(session: Session, record: Any) -> Episode:
    """The episode of a record; the record's rewards or its row are kept in the session."""
    _check(record)
    if "episode" not in record:
        episode, row = _foreign(session, record)
        session.given_rows.append(row)
        return episode
    rows = session.transcript.rows
    ids, mask = list(record["full_token_ids"]), list(record["agent_token_mask"])
    if ids and (ids, mask) != (list(rows[-1].token_ids), _mask(rows[-1])):
        raise SessionError(
            "_run_complete_episode returned an episode with other tokens than were played; "
            "leave 'episode' out to return tokens of its own"
        )
    episode = _with_final_reward(record["episode"], float(record["final_reward"]))
    rewards = np.array(record["per_token_rewards"], np.float64)
    if ids and not np.array_equal(rewards, _placed(session, episode, rows[-1])):
        session.given_rewards[episode.index, len(rows) - 1] = rewards
    return episode


def _placed(session: Session, episode: Episode, row: DraftRow) -> Floats:
    """The episode's rewards on the tokens of its row, as the environment's settings place them."""
    spans = [span for span in row.spans if span.episode == episode.index]
    config = session.env.config
    return place_rewards(
        len(row.token_ids), spans, episode, config.reward_placement, config.final_reward
    )


def _mask(row: DraftRow) -> list[int]:
    mask = [0] * len(row.token_ids)
    for span in row.spans:
        mask[span.start : span.stop] = [1] * span.length
    return mask


def _check(record: Any) -> None:
    """Raise SessionError if a key is missing, lists differ in length, a mask has values other than
    0 and 1, or a reward is not a number."""
    required = (*_LISTS, "final_reward")
    if not isinstance(record, Mapping) or any(key not in record for key in required):
        raise SessionError(
            "_run_complete_episode must return a dict with full_token_ids, full_attention_mask, "
            f"agent_token_mask, per_token_rewards and final_reward; got {short_repr(record)}"
        )
    lengths = {key: len(record[key]) for key in _LISTS}
    if len(set(lengths.values())) > 1:
        raise SessionError(f"_run_complete_episode returned lists of different lengths: {lengths}")
    if not set(record["agent_token_mask"]) <= {0, 1}:
        raise SessionError("agent_token_mask must hold 0 and 1 only")
    checked_number(record["final_reward"], "final_reward")
    for reward in record["per_token_rewards"]:
        checked_number(reward, "per_token_rewards")


def _with_final_reward(episode: Episode, reward: float) -> Episode:
    """The episode with another reward; its last step gets the difference."""
    if reward == episode.reward:
        return episode
    if not episode.actions:
        raise SessionError(f"final_reward is {reward:g}, but the episode has no step to earn it")
    return replace(episode, steps=tuple(with_reward(episode.steps, reward)), reward=reward)


def _foreign(session: Session, record: Mapping[str, Any]) -> tuple[Episode, Row]:
    """An episode and its row, made only from the specification's unpadded dict."""
    mask = tuple(int(on) for on in record["agent_token_mask"])
    spans = [StepSpan(session.episode, k, *run) for k, run in enumerate(_runs(mask))]
    reward = float(record["final_reward"])
    rewards = [0.0] * (len(spans) - 1) + [reward] if spans else []
    steps = tuple(Step(k, "", "", r, done=k == len(spans) - 1) for k, r in enumerate(rewards))
    messages = tuple(map(_message, record.get("final_completion_messages", ())))
    weight = score_weight(session)
    episode = Episode(session.episode, steps, reward, weight, "done", written=messages)
    row = Row(
        session_id=session.session_id,
        group=session.request.group,
        rollout=session.request.index,
        token_ids=np.array(record["full_token_ids"], np.int32),
        logprobs=np.zeros(len(mask), np.float32),
        spans=tuple(spans),
        sampled=False,
        given_rewards=np.array(record["per_token_rewards"], np.float64),
    )
    return episode, row


def _message(message: Mapping[str, Any]) -> Message:
    return {key: clean_text(str(message[key])) for key in ("role", "content")}  # type: ignore[return-value]


def _runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Start and stop of each run of ones."""
    edges = np.flatnonzero(np.diff([0, *mask, 0])).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
