"""The beginning and the end of a state in its environment's `active_states`."""

import logging
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.session import FAULTS
from agentsgym.types import TrialInfo

logger = logging.getLogger(__name__)


def begin_state(
    env: MultistepEnv, session_id: str, task_data: dict[str, Any], trial: TrialInfo
) -> Any:
    """Begin an episode; its first state is then the session's. The last episode's state ends
    before, unless the environment defines its own `_begin_episode`, which takes it over."""
    if not _takes_over(env):
        end_state(env, session_id)
    state = env._begin_episode(session_id, task_data, trial)
    env.active_states[session_id] = state
    return state


def end_state(env: MultistepEnv, session_id: str) -> None:
    """Remove the session's state, if it has one, and let the environment close it."""
    if session_id in env.active_states:
        close_state(env, session_id, env.active_states.pop(session_id))


def close_state(env: MultistepEnv, session_id: str, state: Any) -> None:
    """Call the environment's `_end_episode`; its exceptions are logged."""
    try:
        env._end_episode(session_id, state)
    except FAULTS:
        logger.warning("%s, session %s: _end_episode failed", env.name, session_id, exc_info=True)


def needs_end(env: MultistepEnv) -> bool:
    """Whether the environment defines `_end_episode`."""
    return type(env)._end_episode is not MultistepEnv._end_episode


def _takes_over(env: MultistepEnv) -> bool:
    own = type(env)._begin_episode is not MultistepEnv._begin_episode
    return own or "_begin_episode" in vars(env)
