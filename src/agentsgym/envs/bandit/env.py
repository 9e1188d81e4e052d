"""A Bernoulli bandit in words."""

from collections.abc import Mapping
from typing import Any, TypedDict

from pydantic import Field

from agentsgym.envs.action_form import with_form
from agentsgym.envs.action_text import read_option
from agentsgym.envs.bandit.agents import BanditOptimalAgent, BanditTeacher
from agentsgym.envs.bandit.beliefs import (
    Counts,
    add,
    no_counts,
    observe,
    trial_weights,
)
from agentsgym.envs.bandit.horizon import FiniteHorizon
from agentsgym.envs.bandit.tasks import FIRST_EVAL_SEED, outcome, read_task
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import task_dataset
from agentsgym.envs.settings import EnvSettings, Tasks, Words
from agentsgym.types import Agent, Tokenizer, TrialInfo
from agentsgym.types.errors import ConfigError

ARM_NAMES = ("red", "green", "blue", "yellow", "white", "black", "orange", "pink")
NO_ARM = "No such arm."
REFLECT = "Note what you know about the arms."


class State(TypedDict):
    """An episode: the task, its position in the trial, the pulls, and the environment's last text.

    `carried` counts the earlier episodes if the agent may know them (`carry`), `counts` this one.
    `steps` counts all actions, including malformed ones.
    """

    seed: int
    probabilities: tuple[float, ...]
    trial: TrialInfo
    carried: Counts
    counts: Counts
    steps: int
    said: str


class BanditEnv(MultistepEnv):
    """Pull one of several arms, again and again; each wins with its own fixed probability.

    `task_data` is `{"seed": int}` (arms drawn from the prior), or `{"probabilities": [...]}` with
    an optional seed for the outcomes. A success earns 1/pulls, so an episode's reward is the
    fraction of pulls that won. An action is the name of an arm; anything else is malformed and
    loses the pull. `info["win"]` says whether the pulled arm is the best one; the metric `regret`
    is the best arm's success probability minus that of the pulled arm.

    In a trial the arms stay the same and the noise is new.
    """

    class Settings(EnvSettings):
        """The settings of the bandit."""

        max_steps_per_episode: int = Field(8, description="pulls per episode")
        arms: int = Field(3, ge=2, le=1000, description="number of arms")
        arm_names: Words = Field(None, description="a word for each arm; colors by default")
        prior_alpha: float = Field(
            1.0, gt=0, description="the arms are drawn from Beta(alpha, beta)"
        )
        prior_beta: float = Field(1.0, gt=0, description="see prior_alpha")
        train_tasks: Tasks = Field(1024, description="number of training tasks")
        eval_tasks: Tasks = Field(256, description="number of evaluation tasks")

    config: Settings
    reward_range = (0.0, 1.0)

    def __init__(
        self, tokenizer: Tokenizer | None = None, env_config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(tokenizer, env_config)
        self.pulls: int = self.config.max_steps_per_episode
        self.prior = (self.config.prior_alpha, self.config.prior_beta)
        self.arm_names = self._names()
        self.carries: bool = self.config.carry != "none"
        self._best_play: FiniteHorizon | None = None

    def _names(self) -> tuple[str, ...]:
        arms, names = self.config.arms, self.config.arm_names
        if names is None and arms <= len(ARM_NAMES):
            return ARM_NAMES[:arms]
        if names is None or len(names) != arms:
            raise ConfigError(
                f"{self.name}: env_config.arm_names must be {arms} names (as many as 'arms'), "
                f"got {names!r}"
            )
        return tuple(names)

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> State:
        seed, probabilities = read_task(task_data, len(self.arm_names), self.prior)
        return State(
            seed=seed,
            probabilities=probabilities,
            trial=self.trial_info(),
            carried=no_counts(len(self.arm_names)),
            counts=no_counts(len(self.arm_names)),
            steps=0,
            said="",
        )

    def _begin_episode(self, session_id: str, task_data: dict[str, Any], trial: TrialInfo) -> State:
        state = self._initialize_episode(session_id, task_data)
        state["trial"] = trial.without_state()
        last: State | None = trial.last_state
        if last is not None and self.carries:
            state["carried"] = add(last["carried"], last["counts"])
        return state

    def _format_prompt(self, state: State, step: int) -> str:
        if step > 0:
            return state["said"]
        *most, last = self.arm_names
        arms, place = f"{', '.join(most)} or {last}", state["trial"].round_line("same arms")
        if self.config.explain_actions:
            rules = f"Choose one: {arms}. Each wins at its own fixed rate. {self.pulls} pulls."
            form = "Answer with one word only."
            return with_form(f"{place} {rules}".strip(), form, self.example_action(state))
        rules = (
            f"Pull {arms}; each wins at its own fixed rate. "
            f"Answer with the name. {self.pulls} pulls."
        )
        return f"{place} {rules}".strip()

    def _format_result(self, state: State, reward: float) -> str:
        return state["said"]

    def _format_reflection(self, state: State, reward: float) -> str:
        return f"{state['said']} {REFLECT}"

    def _format_memory(self, reflection: str) -> str:
        return f"Notes: {reflection}"

    def _step_episode(
        self, session_id: str, state: State, action: str
    ) -> tuple[State, float, bool, dict[str, Any]]:
        arm = self.read_arm(action)
        done = state["steps"] + 1 >= self.pulls
        after: State = {**state, "steps": state["steps"] + 1}
        info: dict[str, Any] = {"stop_reason": "pulls_used"}
        best = max(state["probabilities"])
        if arm is None:
            after["said"] = NO_ARM
            info["metrics"] = {"regret": best, "best_arm": 0.0}
            info |= {"malformed": True, "win": False, "anchor": self._anchor(after)}
            return after, 0.0, done, info
        success = self.pull(state, arm)
        after["counts"] = observe(state["counts"], arm, success)
        after["said"] = f"{self.arm_names[arm]} {'won' if success else 'lost'}."
        gap = best - state["probabilities"][arm]
        info["metrics"] = {"regret": gap, "best_arm": float(gap == 0)}
        info |= {"win": gap == 0, "success": success, "anchor": self._anchor(after)}
        return after, success / self.pulls, done, info

    def pull(self, state: State, arm: int) -> bool:
        """The outcome of pulling `arm` now."""
        return outcome(
            state["probabilities"][arm],
            state["seed"],
            state["trial"].episode,
            arm,
            sum(state["counts"][arm]),
        )

    def read_arm(self, action: str) -> int | None:
        """The arm named in an action (see `read_option`); None for other words."""
        name = read_option(action, self.arm_names)
        return None if name is None else self.arm_names.index(name)

    def _anchor(self, state: State) -> str:
        """The information state: equal for equal knowledge, in whatever order it was gained."""
        episode = state["trial"].episode if self.carries else 0
        return f"{episode}/{state['steps']}/{add(state['carried'], state['counts'])}"

    # -- tasks ----------------------------------------------------------------------------------

    def get_train_dataset(self) -> Any:
        """Tasks with the seeds 0, 1, …"""
        return task_dataset(self, [{"seed": k} for k in range(self.config.train_tasks)])

    def get_eval_dataset(self) -> Any:
        """Tasks with the seeds 1,000,000, 1,000,001, …: other arms and other noise."""
        first = max(FIRST_EVAL_SEED, self.config.train_tasks)
        return task_dataset(self, [{"seed": first + k} for k in range(self.config.eval_tasks)])

    # -- the best play --------------------------------------------------------------------------

    @property
    def weights(self) -> tuple[float, ...]:
        """The value of a success at each pull for a player: its share of the trial's score if
        episodes carry, else of one episode's."""
        if self.carries:
            episodes, free_shots = self.config.episodes_per_trial, self.config.free_shots
            return trial_weights(self.pulls, episodes, free_shots)
        return trial_weights(self.pulls)

    @property
    def best_play(self) -> FiniteHorizon:
        """The optimal player of the configured trial. Raises ValueError if it is too large."""
        self._best_play = self._best_play or FiniteHorizon(
            len(self.arm_names), self.weights, self.prior
        )
        return self._best_play

    def admissible_actions(self, state: State) -> list[str]:
        """The arms' names."""
        return list(self.arm_names)

    def example_action(self, state: State) -> str:
        """The first arm's name."""
        return self.arm_names[0]

    def optimal_agent(self) -> Agent:
        """The agent that plays `best_play`. Raises ConfigError if the trial is too large."""
        try:
            _ = self.best_play
        except ValueError as error:
            raise ConfigError(f"{self.name}: no player is known to be optimal: {error}") from error
        return BanditOptimalAgent(self)

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """The agent that pulls random arms and writes correct notes."""
        return BanditTeacher(self, seed=seed)

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """A task is a `seed` or a list of `probabilities`."""
        try:
            read_task(task_data, len(self.arm_names), self.prior)
        except ValueError as error:
            return str(error)
        return None

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The optimal player's reward on this task with its actual outcomes; None if the trial is
        too large for exact play.

        As outcomes depend only on the task, the optimal agent's regret is 0 on every task, and
        other agents are compared with equal luck.
        """
        try:
            rewards = self.reference_play(task_data)
        except ValueError:
            read_task(task_data, len(self.arm_names), self.prior)
            return None
        scored = rewards[self.config.free_shots :]
        return sum(scored) / len(scored)

    def reference_play(self, task_data: Mapping[str, Any]) -> list[float]:
        """The optimal player's reward in each episode of a trial on this task."""
        seed, probabilities = read_task(task_data, len(self.arm_names), self.prior)
        player, nothing = self.best_play, no_counts(len(self.arm_names))
        known, rewards = nothing, []
        for episode in range(self.config.episodes_per_trial):
            known, counts = known if self.carries else nothing, nothing
            for pull in range(self.pulls):
                pulled = pull + (episode * self.pulls if self.carries else 0)
                arm = player.best_arm(add(known, counts), pulled)
                p = probabilities[arm]
                success = outcome(p, seed, episode, arm, sum(counts[arm]))
                counts = observe(counts, arm, success)
            known = add(known, counts)
            rewards.append(sum(s for s, _ in counts) / self.pulls)
        return rewards
