"""Which running session a conversation belongs to.

A best player that needs to know more of a task than its conversation tells (a planner needs the
game) is asked through `get_action` like any other agent, and finds the task here.
"""

import weakref
from collections.abc import Iterable, Sequence
from typing import TypeVar

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.session import Session
from agentsgym.types import Message

E = TypeVar("E", bound=MultistepEnv)
_LIVE: "weakref.WeakSet[MultistepEnv]" = weakref.WeakSet()


def announce(env: MultistepEnv) -> None:
    """Let `session_of` look at the sessions of this environment while it lives."""
    _LIVE.add(env)


def session_of(
    messages: Sequence[Message], kind: type[E], first: Iterable[E] = ()
) -> tuple[E, Session]:
    """The environment of class `kind`, and its session, whose conversation this is.

    Looks into `first`, then into all that were announced. Raises LookupError where there is none.
    """
    announced = [env for env in list(_LIVE) if isinstance(env, kind)]
    for env in (*first, *announced):
        for session in list(env._open_sessions.values()):
            if session.messages == list(messages):
                return env, session
    raise LookupError(f"this conversation belongs to no running session of a {kind.__name__}")
