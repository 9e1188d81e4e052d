"""A base for games whose best play is known.

A game that can say the best action in each state (`KnownGame.best_action`) gets its reference score
and its best player from that.
"""

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from agentsgym.envs.action_text import with_form
from agentsgym.envs.dataset import SeedTasks
from agentsgym.types import Agent, PrivilegedAgent, SessionView, TrialInfo
from agentsgym.types.foreign import truth
from agentsgym.types.names import ConfigError

Draw = Callable[[Any, random.Random, dict[str, Any]], str]
"""Draws an action in a state; the dict is the player's own, empty at the start of an episode."""


def episode_weights(episodes: int = 1, free_shots: int = 0) -> tuple[float, ...]:
    """The share of each episode in the score, shape (episodes,): 0 in free shots, else the mean."""
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


class GameState(TypedDict):
    """What the states of all games hold: the position in the trial, the number of actions so far,
    malformed ones included, and the last answer."""

    trial: TrialInfo
    steps: int
    reply: str


class KnownGame(SeedTasks):
    """A game in which the best action follows from the state.

    A subclass defines `start`, `first_prompt`, `best_action`, `notes` and, if finding the best play
    takes long, `best_play`. Its states are dicts, `GameState` with what `start` adds. They hold
    what their player may know: of earlier episodes what `_carry_over` takes along, which is called
    if the episodes carry. Tasks are seeds unless the subclass defines others.
    """

    reflect: ClassVar[str] = "Note what you know."
    form: str
    """The form of an action in a sentence (`explain_actions`)."""

    @property
    def carries(self) -> bool:
        """Whether an episode shows the trial's earlier ones."""
        return self.config.carry != "none"

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each episode in the score of what a player plays as one trial: one episode
        if nothing carries."""
        trial = self.config.episodes_per_trial, self.config.free_shots
        return episode_weights(*trial) if self.carries else (1.0,)

    @abstractmethod
    def start(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        """What an episode of a task begins with. Raises ValueError with the task's problem."""

    @abstractmethod
    def first_prompt(self, state: Any) -> str:
        """An episode's first prompt, up to the form of an action."""

    @abstractmethod
    def best_action(self, state: Any, kind: str = "best") -> str:
        """The best action in a state, or that of another kind of player. Raises ValueError if the
        trial is too large."""

    @abstractmethod
    def notes(self, state: Any) -> str:
        """All that is known in a state, in the words of the environment."""

    def _carry_over(self, state: Any, last: Any) -> None:
        """Put what the last episode's state knows into the state of a new episode."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> Any:
        return {**self.start(task_data), "trial": self.trial_info(), "steps": 0, "reply": ""}

    def _begin_episode(self, session_id: str, task_data: dict[str, Any], trial: TrialInfo) -> Any:
        state = self._initialize_episode(session_id, task_data)
        state["trial"] = trial.without_state()
        if trial.last_state is not None and self.carries:
            self._carry_over(state, trial.last_state)
        return state

    def episode_of(self, state: Any) -> int:
        """The number of the episode in the trial that its player plays: 0 if nothing carries."""
        return int(state["trial"].episode) if self.carries else 0

    def anchor(self, state: Any, known: object) -> str:
        """The information state: equal for equal knowledge, in whatever order it was gained."""
        return f"{self.episode_of(state)}/{state['steps']}/{known}"

    def _format_prompt(self, state: Any, step: int) -> str:
        if step > 0:
            return str(state["reply"])
        prompt = self.first_prompt(state)
        if not self.config.explain_actions:
            return prompt
        return with_form(prompt, self.form, str(self.example_action(state)))

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
        try:
            self.start(task_data)
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
            self.start(task_data)  # a bad task is an error all the same
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

    @property
    def best_play(self) -> Any:
        """The best play of the configured trial. Raises ValueError if the trial is too large."""
        return None

    def prepare(self, kind: str = "best", task_data: Mapping[str, Any] | None = None) -> None:
        """Find the play of a kind of player on a task, by default on one of those held out. Raises
        ValueError if the trial is too large."""
        _ = self.best_play

    def optimal_agent(self) -> Agent:
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
        return replace(self, session=session)

    def get_action(self, messages: list[dict[str, Any]], agent_state: Any) -> tuple[str, Any]:
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
