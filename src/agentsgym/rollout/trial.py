"""The trial loop: the episodes of one rollout, whatever plays them."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from agentsgym.moved import moved_name
from agentsgym.rollout.answers import text
from agentsgym.rollout.episode import EpisodeGenerator, finish, play_episode, reflect
from agentsgym.rollout.failures import describe
from agentsgym.rollout.outcome import rollout_of
from agentsgym.rollout.session import FAULTS, Session, copy_task
from agentsgym.types import (
    EpisodeOutcome,
    GenerationRequest,
    GenerationResult,
    Rollout,
    Step,
    TrialInfo,
)

Trial = Generator[GenerationRequest, GenerationResult, Rollout]
"""A running trial: it requests actions, and returns its rollout."""

EpisodePlayer = Callable[[Session], EpisodeGenerator]
"""Plays an episode whose first state is in `session.env.active_states`."""


def play_trial(session: Session, play: EpisodePlayer = play_episode) -> Trial:
    """Play every episode of a trial with `play`, and the reflections after them.

    An exception ends the trial and marks the rollout as failed. The environment always drops the
    session at the end.
    """
    episodes = session.env.config["episodes_per_trial"]
    try:
        for number in range(episodes):
            _begin(session, number)
            session.episodes.append((yield from play(session)))
            if session.env.config["carry"] == "summary" and number + 1 < episodes:
                _keep_reflection(session, (yield from reflect(session)))
    except FAULTS as error:
        _fail(session, error)
    finally:
        session.env.active_states.pop(session.session_id, None)
    return rollout_of(session)


def _begin(session: Session, number: int) -> None:
    """Initialize the environment's state for an episode; the config's `carry` decides how much of
    the earlier episodes the agent sees."""
    env = session.env
    carry = env.config["carry"] if number else "none"
    carried = ""
    if carry == "full":
        result = env._format_result(session.state, session.episodes[-1].reward)
        carried = text(result, "_format_result")
    elif carry == "summary" and session.steps and session.steps[-1].kind == "reflection":
        carried = text(env._format_memory(session.steps[-1].action), "_format_memory")
    session.begin_episode(number, carried=carried, go_on=carry == "full")
    trial = _trial_info(session)
    session.trial = trial.without_state()
    env.active_states[session.session_id] = env._begin_episode(
        session.session_id, copy_task(session.task_data), trial
    )


def _trial_info(session: Session) -> TrialInfo:
    """The trial information for the next episode."""
    outcomes = [EpisodeOutcome(e.reward, e.win, e.stop_reason) for e in session.episodes]
    last = session.env.active_states.get(session.session_id) if outcomes else None
    return session.env.trial_info(outcomes, last)


def _keep_reflection(session: Session, step: Step | None) -> None:
    """Add the reflection, if there is one, to its episode."""
    if step is not None:
        last = session.episodes[-1]
        session.episodes[-1] = replace(
            last, steps=(*last.steps, step), messages=tuple(session.messages)
        )


def _fail(session: Session, error: BaseException) -> None:
    """Mark the rollout as failed, and keep the steps of the running episode."""
    session.error = f"{session.where()}\n{describe(error)}"
    if len(session.episodes) == session.episode and session.messages:
        session.episodes.append(finish(session, "error"))


def __getattr__(name: str) -> Any:
    return moved_name(__name__, name)
