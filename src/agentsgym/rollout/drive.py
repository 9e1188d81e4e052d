"""Drives the generator of one session with one agent; and `MultistepEnv._run_complete_episode`: its
default, and what a trial does with its result.
"""

from array import array
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

import numpy as np

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs.base import MultistepEnv, overrides
from agentsgym.rollout.episode import EpisodeGenerator, play_episode, score_weight, with_reward
from agentsgym.rollout.session import Session, SessionError
from agentsgym.rollout.trial import EpisodePlayer, play_trial, rollout_of
from agentsgym.tokens import Node
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
    Tokenizer,
    wait_for,
)
from agentsgym.types.foreign import checked_number
from agentsgym.types.names import ConfigError
from agentsgym.types.protocols import records_supports
from agentsgym.types.reward_placement import penalties, place_rewards
from agentsgym.types.rows import Floats
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


def check_engine(env: MultistepEnv, engine: Any) -> None:
    """Raise ConfigError for an environment whose actions are constrained, and an engine that
    cannot sample so."""
    actions = env.unwrapped.config.actions
    if actions == "whole" and not getattr(engine, "chooses_whole", False):
        raise ConfigError(
            f"{env.name}: env_config.actions='whole' needs the embedded engine, which scores whole "
            f"answers; {type(engine).__name__} does not"
        )
    listed = records_supports(engine) or getattr(engine, "chooses_listed", False)
    if actions != "free" and not listed:
        raise ConfigError(
            f"{env.name}: env_config.actions={actions!r} needs an engine that samples "
            "among given answers: the embedded or the plain one, or servers of serve-model or "
            f"vLLM; {type(engine).__name__} does not"
        )


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
    answer = agent.get_action(
        [message.to_dict() for message in request.messages], session.agent_state
    )
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
    if is_engine_agent(agent):
        check_engine(env, agent.engine)
    session = Session(env, request, sampling_of(agent))
    session.exact = not is_engine_agent(agent) or records_supports(agent.engine)
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
        if session.request.prefix is not None and plays_episodes(env):
            raise SessionError(f"{env.name} plays its episodes itself: it cannot be branched")
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
    return _record_of(session, drive(play_episode(session), agent, session))


def _lone_session(env: MultistepEnv, session_id: str) -> Session:
    request = RolloutRequest(env.class_path, env.env_config, {}, 0, 0, 0, session_id)
    return Session(env, request)


def _record_of(session: Session, episode: Episode) -> dict[str, Any]:
    row = _last_row(session, episode)
    ids = [] if row is None else row.token_ids.tolist()
    return {
        "full_token_ids": ids,
        "full_attention_mask": [1] * len(ids),
        "agent_token_mask": [] if row is None else row.agent_token_mask.tolist(),
        "per_token_rewards": [] if row is None else _placed(session, episode, row).tolist(),
        "final_reward": episode.reward,
        "final_completion_messages": [message.to_dict() for message in session.messages],
        "episode": episode,
    }


def _last_row(session: Session, episode: Episode) -> Row | None:
    """The row in which the running episode, played to its end, acted last."""
    rows = rollout_of(session, episode).rows
    return next((row for row in reversed(rows) if episode.index in row.episodes), None)


def _episode_of(session: Session, record: Any) -> Episode:
    """The episode of a record."""
    _check(record)
    if "episode" not in record:
        return _foreign(session, record)
    ids, mask = list(record["full_token_ids"]), list(record["agent_token_mask"])
    row = _last_row(session, record["episode"])
    if ids and (
        row is None or (ids, mask) != (row.token_ids.tolist(), row.agent_token_mask.tolist())
    ):
        raise SessionError(
            "_run_complete_episode returned an episode with other tokens than were played; "
            "leave 'episode' out to return tokens of its own"
        )
    episode = _with_final_reward(record["episode"], float(record["final_reward"]))
    if not ids or row is None or not plays_episodes(session.env):
        return episode
    return _with_token_rewards(session, episode, row, list(record["per_token_rewards"]))


def _with_token_rewards(
    session: Session, episode: Episode, row: Row, rewards: Sequence[float]
) -> Episode:
    """The episode with these rewards on its own tokens of the row."""
    if not score_weight(session):
        rewards = _placed(session, penalties(episode), row).tolist()
    first, begin = sum(len(earlier.nodes) for earlier in session.episodes), 0
    at, steps = session.tree.tape()["at"].tolist(), list(episode.steps)
    for node in row.nodes:
        end = begin + at[node][2] - at[node][0]
        given = tuple(map(float, rewards[begin:end]))
        if node >= first:
            steps[node - first] = replace(steps[node - first], given_rewards=given)
        elif any(given):
            raise SessionError("per_token_rewards pay for tokens of an earlier episode")
        begin = end
    return replace(episode, steps=tuple(steps))


def _placed(session: Session, episode: Episode, row: Row) -> Floats:
    """The episode's rewards on the tokens of its row, as the environment's settings place them."""
    config = session.env.config
    return place_rewards(row, episode, config.reward_placement, config.final_reward)


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


def _foreign(session: Session, record: Mapping[str, Any]) -> Episode:
    """An episode made only from the specification's unpadded dict: each run of agent tokens is a
    step's answer, the last one earns the reward."""
    ids = [int(token) for token in record["full_token_ids"]]
    given = [float(reward) for reward in record["per_token_rewards"]]
    runs = _runs(tuple(int(on) for on in record["agent_token_mask"]))
    turns = _turns([_message(one) for one in record.get("final_completion_messages", ())], runs)
    session.tree.restart()
    steps: list[Step] = []
    row, parent, begin = array("i"), None, 0
    for k, (acts, stop) in enumerate([*runs, (len(ids), len(ids))]):
        messages, answer = turns[k]
        if k == len(runs) and begin == stop and not messages:
            break
        row.extend(ids[begin:acts])
        begins = "" if k else "episode"
        node = Node(parent, begins, messages, row, begin, acts, not k, answer=answer, sampled=False)
        parent = session.tree.add(node, ids[acts:stop])
        earned = float(record["final_reward"]) if k == len(runs) - 1 else 0.0
        own = tuple(given[begin:stop])
        step = Step(k, reward=earned, done=k == len(runs) - 1, given_rewards=own, **node.recorded)
        steps.append(step)
        begin = stop
    played, rest = tuple(steps[: len(runs)]), steps[len(runs) :]
    reward = float(record["final_reward"])
    weight = score_weight(session)
    return Episode(session.episode, played, reward, weight, "done", rest[0] if rest else None)


def _turns(
    messages: Sequence[Message], answers: Sequence[Any]
) -> list[tuple[tuple[Message, ...], Message | None]]:
    """The messages before each of the answers, each with the answer, and those after the last; all
    stand before the first one if other messages are answers than those."""
    places = [k for k, message in enumerate(messages) if message.role == "assistant"]
    if len(places) != len(answers):
        return [(tuple(messages), None), *[((), None)] * len(answers)]
    begins = [0, *(k + 1 for k in places)]
    turns = [(tuple(messages[a:b]), messages[b]) for a, b in zip(begins, places, strict=False)]
    return [*turns, (tuple(messages[begins[-1] :]), None)]


def _message(message: Mapping[str, Any]) -> Message:
    return Message(clean_text(str(message["role"])), clean_text(str(message["content"])))


def _runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Start and stop of each run of ones."""
    edges = np.flatnonzero(np.diff([0, *mask, 0])).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
