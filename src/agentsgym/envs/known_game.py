"""A base for games whose best play is known.

A game that can say the best action in each state (`KnownGame.best_action`) gets its reference score
and its best player from that.
"""

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from agentsgym.envs.dataset import SeedTasks
from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView, TrialInfo
from agentsgym.types.foreign import truth
from agentsgym.types.names import ConfigError

Draw = Callable[[Any, random.Random, dict[str, Any]], str]
"""Draws an action in a state; the dict is the player's own, empty at the start of an episode."""


def episode_weights(episodes: int = 1, free_shots: int = 0) -> tuple[float, ...]:
    """The share of each episode in the score, shape (episodes,): 0 in free shots, else the mean."""
    if not 0 <= free_shots < episodes:
        raise ValueError(
            f"need 0 <= free_shots < episodes, got {free_shots} of {episodes} episodes"
        )
    return (0.0,) * free_shots + (1.0 / (episodes - free_shots),) * (episodes - free_shots)


def bit_mask(flags: npt.NDArray[np.bool_]) -> int:
    """A set as a number: bit i for flag i."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def lowest(mask: int) -> int:
    """The first member of a set that is not empty."""
    return (mask & -mask).bit_length() - 1


def members(mask: int) -> list[int]:
    """All members of a set."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


class ReferenceEpisode(NamedTuple):
    """An episode of a reference player."""

    reward: float
    win: bool
    steps: int


class KnownGame(SeedTasks):
    """A game in which the best action follows from the state.

    A subclass defines `best_action`, `notes` and, if that takes long, `prepare`. Its states are
    dicts; the base writes the position in the trial to `state["trial"]`, and reads the last answer
    from `state["reply"]`. They hold what their player may know: of earlier episodes what
    `_carry_over` takes along, which is called if the episodes carry. Tasks are seeds unless the
    subclass defines others.
    """

    reflect: ClassVar[str] = "Note what you know."

    @property
    def carries(self) -> bool:
        """Whether an episode shows the trial's earlier ones."""
        return self.config.carry != "none"

    @property
    def played_as_one(self) -> tuple[int, int]:
        """(episodes, free shots) that a player plays as one trial: one episode if nothing
        carries."""
        config = self.config
        return (config.episodes_per_trial, config.free_shots) if self.carries else (1, 0)

    @abstractmethod
    def best_action(self, state: Any, kind: str = "best") -> str:
        """The best action in a state, or that of another kind of player. Raises ValueError if the
        trial is too large."""

    @abstractmethod
    def notes(self, state: Any) -> str:
        """All that is known in a state, in the words of the environment."""

    def _carry_over(self, state: Any, last: Any) -> None:
        """Put what the last episode's state knows into the state of a new episode."""

    def _begin_episode(self, session_id: str, task_data: dict[str, Any], trial: TrialInfo) -> Any:
        state = self._initialize_episode(session_id, task_data)
        state["trial"] = trial.without_state()
        if trial.last_state is not None and self.carries:
            self._carry_over(state, trial.last_state)
        return state

    def episode_of(self, state: Any) -> int:
        """The number of the episode in the trial that its player plays: 0 if nothing carries."""
        return int(state["trial"].episode) if self.carries else 0

    def _format_result(self, state: Any, reward: float) -> str:
        return str(state["reply"])

    def _format_reflection(self, state: Any, reward: float) -> str:
        return f"{state['reply']} {self.reflect}"

    def _format_note_request(self, state: Any, step: int) -> str:
        return self.reflect

    def _format_memory(self, reflection: str) -> str:
        return f"Notes: {reflection}"

    # -- tasks ----------------------------------------------------------------------------------

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """The ValueError with which an episode would begin."""
        try:
            self._initialize_episode("", dict(task_data))
        except ValueError as error:
            return str(error)
        return None

    # -- the best play --------------------------------------------------------------------------

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The best player's reward on this task with its actual outcomes; None if the trial is too
        large for exact play. So the best player's regret is 0 on every task."""
        return self.score_of(task_data)

    def score_of(self, task_data: Mapping[str, Any], kind: str = "best") -> float | None:
        """The mean reward of a kind of player in the scored episodes; None as above."""
        try:
            self.prepare(kind, task_data)
        except ValueError:
            self._initialize_episode("", dict(task_data))  # a bad task is an error all the same
            return None
        scored = self.reference_play(task_data, kind)[self.config.free_shots :]
        return sum(episode.reward for episode in scored) / len(scored)

    def reference_play(
        self, task_data: Mapping[str, Any], kind: str = "best"
    ) -> list[ReferenceEpisode]:
        """The episodes of a trial that a kind of player plays on this task. Raises ValueError if
        the trial is too large for exact play."""
        played, last = [], None
        for number in range(self.config.episodes_per_trial):
            trial = TrialInfo(episode=number, carry=self.config.carry, last_state=last)
            last = self._begin_episode("", dict(task_data), trial)
            rewards: list[float] = []
            done, info = False, dict[str, Any]()
            while not done and len(rewards) < self.config.max_steps_per_episode:
                action = self.best_action(last, kind)
                last, reward, done, info = self._step_episode("", last, action)
                rewards.append(reward)
            win = truth(info.get("win")) is True
            played.append(ReferenceEpisode(sum(rewards), win, len(rewards)))
        return played

    def prepare(self, kind: str = "best", task_data: Mapping[str, Any] | None = None) -> None:
        """Find the play of a kind of player on a task, by default on one of those held out. Raises
        ValueError if the trial is too large."""

    def optimal_agent(self) -> Agent:
        """The best player. Raises ConfigError if the trial is too large."""
        return self.agent_of()

    def agent_of(self, kind: str = "best") -> Agent:
        """A kind of player as an agent. Raises ConfigError if the trial is too large."""
        try:
            self.prepare(kind)
        except ValueError as error:
            raise ConfigError(f"{self.name}: no player is known to be optimal: {error}") from error
        return KnownGameAgent(self, lambda state, memory: self.best_action(state, kind))

    def random_agent(self, draw: Draw, seed: Any) -> Agent:
        """A teacher that draws its actions: a model that imitates it learns how to act and to take
        notes, but has to find out itself how to play well."""
        rng = random.Random(seed)
        return KnownGameAgent(self, lambda state, memory: draw(state, rng, memory))


@dataclass(frozen=True, slots=True)
class _Turn:
    """The player's last action, the state that it was made in, and what the player remembers."""

    state: Any
    action: str
    memory: dict[str, Any]


@dataclass(frozen=True, slots=True)
class KnownGameAgent(PrivilegedAgent):
    """A player of a `KnownGame`. It follows the game in a state of its own, and writes complete
    notes where the agent is asked for them. `choose` gets the state and a dict, which is empty
    at the start of every episode."""

    env: KnownGame
    choose: Callable[[Any, dict[str, Any]], str]
    session: SessionView | None = None

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session."""
        return replace(self, session=session)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """An action, or correct notes; the agent's state is its last `_Turn`."""
        if self.session is None:
            return PrivilegedAgent.get_action(self, messages, agent_state)
        last: _Turn | None = agent_state
        trial = self.session.trial
        # The environment has already answered the last action, so that an answerer that remembers
        # its answers is not asked again.
        state = last and self.env._step_episode("", last.state, last.action)[0]
        if self.session.asks_for_note:
            return self.env.notes(state), last
        memory: dict[str, Any] = {}
        if last is None or last.state["trial"].episode != trial.episode:
            new_trial = TrialInfo(episode=trial.episode, carry=trial.carry, last_state=state)
            state = self.env._begin_episode("", dict(self.session.task_data), new_trial)
        else:
            memory = last.memory
        action = self.choose(state, memory)
        return action, _Turn(state, action, memory)
