"""A random player for any environment that lists its admissible actions."""

import random
from typing import TYPE_CHECKING, Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.types import Agent, Message

if TYPE_CHECKING:
    from agentsgym.rollout.seat import Seat

NOTHING_LEFT = "Nothing to note."


class RandomAgent:
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
        return type(env).admissible_actions is not MultistepEnv.admissible_actions

    def seated(self, seat: "Seat") -> Agent:
        """The player of one session."""
        return _Seated(seat, self._rng)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """Raises LookupError: messages alone do not say which actions are admissible."""
        raise LookupError("a RandomAgent needs a seat in a session: play it with run_trial")


class _Seated:
    def __init__(self, seat: "Seat", rng: random.Random) -> None:
        self._seat = seat
        self._rng = rng

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """One of the admissible actions. Raises ValueError if there is none."""
        actions = self._seat.admissible_actions()
        if actions:
            return self._rng.choice(actions), None
        if self._seat.episode_is_over:
            return NOTHING_LEFT, None  # this is a request for a reflection
        raise ValueError(f"{self._seat.env.name}: nothing is admissible")
