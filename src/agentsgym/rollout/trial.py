"""The trial loop, and the rollout of a session that has ended."""

import logging
from collections.abc import Callable, Generator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from agentsgym.envs.base import MultistepEnv, overrides
from agentsgym.rollout.answers import checked_text
from agentsgym.rollout.episode import (
    EpisodeGenerator,
    after_answer,
    finish,
    memory_text,
    play_episode,
    reflect,
    unanswered,
)
from agentsgym.rollout.failures import describe
from agentsgym.rollout.session import Session
from agentsgym.tokens import warn_rewritten
from agentsgym.types import (
    Episode,
    EpisodeOutcome,
    GenerationRequest,
    GenerationResult,
    Rollout,
    Step,
    TrialInfo,
)

logger = logging.getLogger(__name__)

TrialGenerator = Generator[GenerationRequest, GenerationResult, Rollout]
"""A running trial: it requests actions, and returns its rollout."""


class Cut(Exception):
    """Raised in a trial that waits for an action: it ends there, with this stop reason."""

    def __init__(self, stop_reason: str) -> None:
        super().__init__(stop_reason)
        self.stop_reason = stop_reason


EpisodePlayer = Callable[[Session], EpisodeGenerator]
"""Plays an episode whose first state is in `session.env.active_states`."""


def play_trial(session: Session, play: EpisodePlayer = play_episode) -> TrialGenerator:
    """Play every episode of a trial with `play`, and the reflections after them.

    An exception ends the trial and marks the rollout as failed, except `Cut`, and KeyboardInterrupt
    which ends the run. The environment always drops the session at the end.
    """
    try:
        yield from _play_episodes(session, play)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _fail(session, error)
    finally:
        end_state(session.host, session.session_id)
    return rollout_of(session)


def _play_episodes(
    session: Session, play: EpisodePlayer
) -> Generator[GenerationRequest, GenerationResult, None]:
    episodes = session.env.config.episodes_per_trial
    try:
        for number in range(episodes):
            _begin(session, number)
            session.episodes.append((yield from play(session)))
            if session.env.config.carry == "summary" and number + 1 < episodes:
                _keep_reflection(session, (yield from reflect(session)))
    except Cut as cut:
        _end_here(session, cut.stop_reason)


def _end_here(session: Session, stop_reason: str) -> None:
    """End the trial instead of the requested action."""
    session.tree.withdraw()
    if len(session.episodes) == session.episode:  # no reflection was requested
        session.episodes.append(finish(session, stop_reason))


def _begin(session: Session, number: int) -> None:
    """Initialize the environment's state for an episode; the config's `carry` decides how much of
    the earlier episodes the agent sees."""
    env = session.env
    carry = env.config.carry if number else "none"
    carried = _CARRIED[carry](session) if carry in _CARRIED else ""
    session.begin_episode(number, carried=carried, go_on=carry == "full")
    trial = _trial_info(session)
    session.trial = trial.without_state()
    begin_state(session.host, session.session_id, deepcopy(dict(session.task_data)), trial)


def result_text(session: Session) -> str:
    """The text about the finished episode, before the first prompt of the next (`carry="full"`)."""
    reward = session.episodes[-1].reward
    result = session.host._format_result(session.state, reward)
    return after_answer(session, checked_text(result, "_format_result"))


_CARRIED = {"full": result_text, "summary": memory_text}
"""The text of the earlier episodes before an episode's first prompt, for each way to carry."""


def _trial_info(session: Session) -> TrialInfo:
    """The trial information for the next episode."""
    outcomes = [EpisodeOutcome(e.reward, e.win, e.stop_reason) for e in session.episodes]
    last = session.env.active_states.get(session.session_id) if outcomes else None
    return session.env.trial_info(outcomes, last)


def _keep_reflection(session: Session, step: Step | None) -> None:
    """Add the reflection, if there is one, to its episode."""
    if step is not None:
        last = session.episodes[-1]
        session.episodes[-1] = replace(last, steps=(*last.steps, step))


def _fail(session: Session, error: BaseException) -> None:
    """Mark the rollout as failed, and keep the steps of the running episode."""
    session.error = f"{session.where()}\n{describe(error)}"
    if len(session.episodes) == session.episode:
        if session.steps or session.messages:
            session.episodes.append(finish(session, "error"))
    elif rest := unanswered(session):
        session.episodes[-1] = replace(session.episodes[-1], unanswered=rest)


def begin_state(
    env: MultistepEnv, session_id: str, task_data: dict[str, Any], trial: TrialInfo
) -> None:
    """Begin an episode; its first state is then the session's. The last episode's state ends
    before, unless the environment defines its own `_begin_episode`, which takes it over."""
    if not overrides(env, "_begin_episode"):
        end_state(env, session_id)
    env.active_states[session_id] = env._begin_episode(session_id, task_data, trial)


def end_state(env: MultistepEnv, session_id: str) -> None:
    """Remove the session's state, if it has one, and let the environment close it; its exceptions
    are logged."""
    if session_id not in env.active_states:
        return
    try:
        env._end_episode(session_id, env.active_states.pop(session_id))
    except KeyboardInterrupt:
        raise
    except BaseException:
        logger.warning("%s, session %s: _end_episode failed", env.name, session_id, exc_info=True)


def rollout_of(session: Session, *more: Episode) -> Rollout:
    """The rollout of a session, with what it played and `more` episodes; with an `error` it carries
    no loss."""
    request, env, tree = session.request, session.env, session.tree
    if tree.rewritten:
        warn_rewritten(env.codec)
    return Rollout(
        session_id=request.session_id,
        group=request.group,
        index=request.index,
        env_class_path=env.class_path,
        env_config=env.env_config,
        task_data=request.task_data,
        episodes=(*session.episodes, *more),
        **tree.tape(),
        error=session.error,
        seed=request.seed,
        reward_placement=env.config.reward_placement,
        final_reward_placement=env.config.final_reward,
        replayed=0 if request.prefix is None else min(request.prefix.nodes, len(tree)),
    )
