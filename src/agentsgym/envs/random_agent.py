"""A player for any environment that lists what may be done: one of those, at random."""

import random
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.open_sessions import session_of
from agentsgym.types import Message

_METHOD = "admissible_actions"  # of some environments, not of the base class


class RandomAgent:
    """Says one of `env.admissible_actions(state)`, each as likely as the others.

    What a warm start imitates where nobody is there who plays well: a model then knows the form of
    a move and explores all of them. It finds the running session that a conversation belongs to
    among the environments of this process that are of `env`'s class.

    Args:
        env: an environment that has the method `admissible_actions`, and announces itself (see
            `agentsgym.envs.open_sessions`) where others of its class are to be played too.
        seed: of the choices.
    """

    def __init__(self, env: MultistepEnv, *, seed: int = 0) -> None:
        if not hasattr(env, _METHOD):
            raise TypeError(f"{env.name} has no method admissible_actions(state)")
        self._env = env
        self._rng = random.Random(seed)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """One of the session's admissible actions.

        Raises LookupError for a conversation that belongs to no running session, and ValueError
        where nothing is admissible.
        """
        env, session = session_of(messages, type(self._env), (self._env,))
        actions: list[str] = getattr(env, _METHOD)(env.active_states[session.session_id])
        if not actions:
            raise ValueError(f"{env.name}: nothing is admissible in {session.session_id}")
        return self._rng.choice(actions), None
