"""A random player for any environment that lists its admissible actions."""

import random
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView

NOTHING_LEFT = "Nothing to note."


class RandomAgent(PrivilegedAgent):
    """Plays one of `env.admissible_actions(state)`, each with the same probability.

    A warm start imitates it if the environment has no expert: the model learns the form of a move
    and still explores all moves.

    Args:
        env: an environment that defines `admissible_actions`; the agent can also play others.
        seed: the seed of the choices.
    """

    def __init__(self, env: MultistepEnv, *, seed: int = 0) -> None:
        if not self.can_play(env):
            raise TypeError(f"{env.name} has no method admissible_actions(state)")
        self._rng = random.Random(seed)

    @staticmethod
    def can_play(env: MultistepEnv) -> bool:
        """Whether the environment lists its actions."""
        return hasattr(env.unwrapped, "admissible_actions")

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session."""
        return _RandomPlayer(session, self._rng)


class _RandomPlayer:
    def __init__(self, session: SessionView, rng: random.Random) -> None:
        self._session = session
        self._rng = rng

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """One of the admissible actions. Raises ValueError if there is none."""
        actions = self._session.admissible_actions()
        if actions:
            return self._rng.choice(actions), None
        if self._session.episode_is_over:
            return NOTHING_LEFT, None
        raise ValueError(f"{self._session.env.name}: nothing is admissible")
