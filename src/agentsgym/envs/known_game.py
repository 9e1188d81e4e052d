"""What is known about playing an environment, and a base for games whose best play is known.

An environment may define any method of `KnownPlay`; callers ask `known_play(env)`. A game that can
say the best action in each state (`KnownGame.best_action`) gets its reference score and its best
player from that.
"""

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import task_dataset
from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView, TrialInfo
from agentsgym.types.errors import ConfigError

FIRST_EVAL_SEED = 1_000_000


class KnownPlay:
    """Optional methods of an environment: its actions, its players, and their scores."""

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """Expected reward of the best known play on this task; None if unknown."""
        return None

    def other_references(self, task_data: Mapping[str, Any]) -> Mapping[str, float]:
        """Expected rewards of other players on this task, by a name in words ("best without
        exploring"), which a run shows beside the best known play."""
        return {}

    def optimal_agent(self) -> Agent | None:
        """The best known player; None if there is none."""
        return None

    def teacher_agent(self, *, seed: int = 0) -> Agent | None:
        """The player that a warm start imitates; None: a random player of admissible actions."""
        return None

    def admissible_actions(self, state: Any) -> Sequence[str] | None:
        """Actions that make sense in a state; None if the environment does not list them."""
        return None

    def example_action(self, state: Any) -> str | None:
        """A legal action in the first state of an episode, for the prompt (`explain_actions`). It
        must not tell more about the solution than the prompt."""
        return None

    def model_figures(self, model: Any, tokenizer: Any) -> Mapping[str, float]:
        """Figures of a small model before RL (a warm start, or one that ships with the package),
        for the run's summary; it should take seconds at most."""
        return {}


OPTIONAL = tuple(name for name in vars(KnownPlay) if not name.startswith("_"))


def known_play(env: MultistepEnv) -> KnownPlay:
    """The optional methods that an environment defines, and the defaults of the others."""
    known = KnownPlay()
    for name in OPTIONAL:
        if hasattr(env, name):
            setattr(known, name, getattr(env, name))
    return known


class ReferenceEpisode(NamedTuple):
    """An episode of a reference player."""

    reward: float
    win: bool
    steps: int


class KnownGame(MultistepEnv):
    """A game in which the best action follows from the state.

    A subclass defines `best_action`, `notes` and, if that takes long, `prepare`. It keeps in its
    states what its player may know: of earlier episodes only if they carry. Tasks are seeds unless
    it defines others.
    """

    reflect: ClassVar[str] = "Note what you know."

    @property
    def carries(self) -> bool:
        """Whether an episode shows the trial's earlier ones."""
        return self.config.carry != "none"

    @abstractmethod
    def best_action(self, state: Any, kind: str = "best") -> str:
        """The best action in a state, or that of another kind of player. Raises ValueError if the
        trial is too large."""

    @abstractmethod
    def notes(self, state: Any) -> str:
        """All that is known in a state, in the words of the environment."""

    def _format_result(self, state: Any, reward: float) -> str:
        return str(state["said"])

    def _format_reflection(self, state: Any, reward: float) -> str:
        return f"{state['said']} {self.reflect}"

    def _format_memory(self, reflection: str) -> str:
        return f"Notes: {reflection}"

    # -- tasks ----------------------------------------------------------------------------------

    def get_train_dataset(self) -> Any:
        """Tasks with the seeds 0, 1, …"""
        return task_dataset(self, [{"seed": k} for k in range(self._wanted("train_tasks"))])

    def get_eval_dataset(self) -> Any:
        """Tasks with the seeds 1,000,000, 1,000,001, …"""
        first = max(FIRST_EVAL_SEED, self._wanted("train_tasks"))
        return task_dataset(self, [{"seed": first + k} for k in range(self._wanted("eval_tasks"))])

    def _wanted(self, key: str) -> int:
        return int(getattr(self.config, key))

    # -- the best play --------------------------------------------------------------------------

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The best player's reward on this task with its actual outcomes; None if the trial is too
        large for exact play. So the best player's regret is 0 on every task."""
        return self.score_of(task_data)

    def score_of(self, task_data: Mapping[str, Any], kind: str = "best") -> float | None:
        """The mean reward of a kind of player in the scored episodes; None as above."""
        try:
            self.prepare(kind)
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
            played.append(ReferenceEpisode(sum(rewards), bool(info.get("win")), len(rewards)))
        return played

    def prepare(self, kind: str = "best") -> None:
        """Find the play of a kind of player. Raises ValueError if the trial is too large."""

    def optimal_agent(self) -> Agent:
        """The best player. Raises ConfigError if the trial is too large."""
        return self.agent_of()

    def agent_of(self, kind: str = "best") -> Agent:
        """A kind of player as an agent. Raises ConfigError if the trial is too large."""
        return _Best(self, kind)


@dataclass(slots=True)
class _Place:
    """Where a player is: the episode, and the state that its own actions have led to."""

    episode: int
    state: Any


class KnownGameAgent(PrivilegedAgent):
    """A player of a `KnownGame`. It follows the game in a state of its own, and writes complete
    notes where the agent is asked to reflect."""

    def __init__(self, env: KnownGame) -> None:
        self._env = env

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session."""
        return _Player(self, self._env, session)

    @abstractmethod
    def choose(self, state: Any) -> str:
        """The action in a state."""


class _Player:
    def __init__(self, agent: KnownGameAgent, env: KnownGame, session: SessionView) -> None:
        self._agent = agent
        self._env = env
        self._session = session

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """An action, or correct notes; the agent's state is a `_Place`."""
        place: _Place | None = agent_state
        if self._session.episode_is_over:
            assert place is not None
            return self._env.notes(place.state), place
        trial = self._session.trial
        if place is None or place.episode != trial.episode:
            place = self._begin(trial, None if place is None else place.state)
        action = self._agent.choose(place.state)
        after, _, _, _ = self._env._step_episode("", place.state, action)
        return action, _Place(place.episode, after)

    def _begin(self, trial: TrialInfo, last: Any) -> _Place:
        given = TrialInfo(episode=trial.episode, carry=trial.carry, last_state=last)
        task = dict(self._session.task_data)
        return _Place(trial.episode, self._env._begin_episode("", task, given))


class _Best(KnownGameAgent):
    """Plays `best_action`."""

    def __init__(self, env: KnownGame, kind: str) -> None:
        super().__init__(env)
        self._kind = kind
        try:
            self._env.prepare(kind)
        except ValueError as error:
            raise ConfigError(f"{env.name}: no player is known to be optimal: {error}") from error

    def choose(self, state: Any) -> str:
        """The best action."""
        return self._env.best_action(state, self._kind)


class DrawnAgent(KnownGameAgent):
    """A teacher that draws its actions: a model that imitates it learns how to act and to take
    notes, but has to find out itself how to play well. `draw(state, rng)` draws an action."""

    def __init__(self, env: KnownGame, draw: Any, seed: Any) -> None:
        super().__init__(env)
        self._draw = draw
        self._rng = random.Random(seed)

    def choose(self, state: Any) -> str:
        """A drawn action."""
        return str(self._draw(state, self._rng))
