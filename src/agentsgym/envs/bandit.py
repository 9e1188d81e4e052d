"""A Bernoulli bandit in words, and its finite-horizon Bayes-optimal player, by dynamic programming.

A seed determines arms and outcomes. All random numbers are hashes of the seed. The n-th pull of an
arm in the e-th episode of a trial draws the same uniform number u(seed, e, arm, n) in every rollout
and succeeds if u is below the arm's probability (common random numbers). So rollouts of a group
differ only by their pulls, which removes luck from their comparison; another episode has new noise.

Knowledge is `Counts`: (successes, failures) of each arm. With independent Beta(a, b) priors an arm
with counts (s, f) succeeds next with probability (s + a) / (s + f + a + b).
"""

import math
import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import Field

from agentsgym.envs.action_text import read_option
from agentsgym.envs.dataset import read_seed
from agentsgym.envs.known_game import GameState, KnownGame
from agentsgym.envs.settings import EnvSettings, Tasks
from agentsgym.types import Agent, session_seed

Counts = tuple[tuple[int, int], ...]
Prior = tuple[float, float]
UNIFORM: Prior = (1.0, 1.0)
MAX_STATES = 200_000
_TIE = 1e-12


def no_counts(arms: int) -> Counts:
    """Nothing pulled yet."""
    return ((0, 0),) * arms


def observe(counts: Counts, arm: int, success: bool) -> Counts:
    """The counts after one more pull of `arm`."""
    s, f = counts[arm]
    return (*counts[:arm], (s + success, f + (not success)), *counts[arm + 1 :])


def add(left: Counts, right: Counts) -> Counts:
    """The sum of two counts."""
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(left, right, strict=True))


def predictive(count: tuple[int, int], prior: Prior) -> float:
    """Probability that an arm with these counts succeeds next."""
    (s, f), (a, b) = count, prior
    return (s + a) / (s + f + a + b)


class FiniteHorizon:
    """Maximizes E[Σ_t weights[t] · success at pull t] over all policies, exactly.

    With w the weights, T their number, and p_a the predictive probability of arm a at counts c,

        V_T(c) = 0,   V_t(c) = max_a p_a (w_t + V_{t+1}(c + success of a))
                                     + (1 − p_a) V_{t+1}(c + failure of a).

    The weights are the trial's rewards: 0 in free shots, which the player then uses to learn. The
    arms have equal priors, so counts are kept sorted. Raises ValueError if more than about
    `MAX_STATES` states would be needed.
    """

    def __init__(self, arms: int, weights: Sequence[float], prior: Prior = UNIFORM) -> None:
        if arms < 1 or min(prior) <= 0:
            raise ValueError(f"need arms >= 1 and a positive prior; got {arms}, {prior}")
        states = state_count(arms, len(weights))
        if states > MAX_STATES:
            raise ValueError(
                f"{arms} arms and {len(weights)} pulls need about {states} states, "
                f"more than {MAX_STATES}"
            )
        self.arms = arms
        self.weights = tuple(weights)
        self.prior = prior
        self._left = [sum(self.weights[t:]) for t in range(len(self.weights) + 1)]
        self._values: dict[tuple[int, Counts], float] = {}

    def value(self, counts: Counts | None = None, pulled: int = 0) -> float:
        """Expected weighted successes of the remaining pulls, at `counts` after `pulled` pulls."""
        return self._value(pulled, tuple(sorted(counts or no_counts(self.arms))))

    def action_values(self, counts: Counts, pulled: int) -> list[float]:
        """The value of each arm if the best policy follows, shape (arms,)."""
        return [self._action_value(pulled, counts, arm) for arm in range(self.arms)]

    def best_arm(self, counts: Counts, pulled: int) -> int:
        """The arm to pull; the first of equally good ones."""
        values = self.action_values(counts, pulled)
        highest = max(values)
        return next(arm for arm, value in enumerate(values) if value >= highest - _TIE)

    def _value(self, pulled: int, counts: Counts) -> float:
        if not self._left[pulled]:
            return 0.0
        key = (pulled, counts)
        if key not in self._values:
            distinct = {count: arm for arm, count in enumerate(counts)}
            self._values[key] = max(
                self._action_value(pulled, counts, arm) for arm in distinct.values()
            )
        return self._values[key]

    def _action_value(self, pulled: int, counts: Counts, arm: int) -> float:
        p = predictive(counts[arm], self.prior)
        won = tuple(sorted(observe(counts, arm, True)))
        lost = tuple(sorted(observe(counts, arm, False)))
        gain = self.weights[pulled] + self._value(pulled + 1, won)
        return p * gain + (1.0 - p) * self._value(pulled + 1, lost)


def state_count(arms: int, pulls: int) -> int:
    """About how many sorted counts are reachable within `pulls` pulls."""
    return math.comb(pulls + 2 * arms, 2 * arms) // math.factorial(arms)


# -- the environment -------------------------------------------------------------------------------


ARM_NAMES = ("red", "green", "blue", "yellow", "white", "black", "orange", "pink")
NO_ARM = "No such arm."


class ArmsState(GameState):
    """An episode: the task, and its pulls.

    `carried` counts the earlier episodes if the agent may know them (`carry`), `counts` this one.
    """

    seed: int
    probabilities: tuple[float, ...]
    carried: Counts
    counts: Counts


class BanditEnv(KnownGame):
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
        arms: int = Field(3, ge=2, le=len(ARM_NAMES), description="number of arms")
        prior_alpha: float = Field(
            1.0, gt=0, description="the arms are drawn from Beta(alpha, beta)"
        )
        prior_beta: float = Field(1.0, gt=0, description="see prior_alpha")
        train_tasks: Tasks = Field(1024, description="number of training tasks")
        eval_tasks: Tasks = Field(256, description="number of evaluation tasks")

    config: Settings
    reward_range = (0.0, 1.0)
    reflect = "Note what you know about the arms."
    form = "Answer with one word only."

    def _set_up(self) -> None:
        self.pulls: int = self.config.max_steps_per_episode
        self.prior = (self.config.prior_alpha, self.config.prior_beta)
        self.arm_names = ARM_NAMES[: self.config.arms]

    # -- an episode -----------------------------------------------------------------------------

    def start(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        arms, values = len(self.arm_names), task_data.get("probabilities")
        seed = read_seed(task_data, None if values is None else 0)
        if values is None:
            rng = random.Random(f"bandit-{seed}")
            values = [rng.betavariate(*self.prior) for _ in range(arms)]
        numbers = [float(p) for p in values if isinstance(p, int | float) and 0 <= p <= 1]
        if len(numbers) != len(values) or len(values) != arms:
            raise ValueError(
                f"task_data['probabilities'] must be {arms} numbers in [0, 1], got {values!r}"
            )
        none = no_counts(arms)
        return {"seed": seed, "probabilities": tuple(numbers), "carried": none, "counts": none}

    def _carry_over(self, state: ArmsState, last: ArmsState) -> None:
        state["carried"] = _known(last)

    def first_prompt(self, state: ArmsState) -> str:
        *most, last = self.arm_names
        arms, place = f"{', '.join(most)} or {last}", state["trial"].round_line("same arms")
        rules = f"Pull {arms}; each wins at its own fixed rate. Answer with the name."
        if self.config.explain_actions:
            rules = f"Choose one: {arms}. Each wins at its own fixed rate."
        return f"{place} {rules} {self.pulls} pulls.".strip()

    def _step_episode(
        self, session_id: str, state: ArmsState, action: str
    ) -> tuple[ArmsState, float, bool, dict[str, Any]]:
        name = read_option(action, self.arm_names)
        arm = None if name is None else self.arm_names.index(name)
        done = state["steps"] + 1 >= self.pulls
        after: ArmsState = {**state, "steps": state["steps"] + 1}
        info: dict[str, Any] = {"stop_reason": "pulls_used"}
        best = max(state["probabilities"])
        if arm is None:
            after["reply"] = NO_ARM
            info["metrics"] = {"regret": best, "best_arm": 0.0}
            info |= {"malformed": True, "win": False, "anchor": self.anchor(after, _known(after))}
            return after, 0.0, done, info
        pulled, episode = sum(state["counts"][arm]), state["trial"].episode
        chance = session_seed("bandit", state["seed"], episode, arm, pulled) / 2**63
        success = chance < state["probabilities"][arm]
        after["counts"] = observe(state["counts"], arm, success)
        after["reply"] = f"{self.arm_names[arm]} {'won' if success else 'lost'}."
        gap = best - state["probabilities"][arm]
        info["metrics"] = {"regret": gap, "best_arm": float(gap == 0)}
        info |= {"win": gap == 0, "success": success, "anchor": self.anchor(after, _known(after))}
        return after, success / self.pulls, done, info

    # -- the best play --------------------------------------------------------------------------

    @cached_property
    def best_play(self) -> FiniteHorizon:
        weights = [share / self.pulls for share in self.shares for _ in range(self.pulls)]
        return FiniteHorizon(len(self.arm_names), weights, self.prior)

    def admissible_actions(self, state: ArmsState) -> list[str]:
        return list(self.arm_names)

    def best_action(self, state: ArmsState, kind: str = "best") -> str:
        pulled = state["steps"] + self.episode_of(state) * self.pulls
        return self.arm_names[self.best_play.best_arm(_known(state), pulled)]

    def notes(self, state: ArmsState) -> str:
        """The counts in words: "red 2 won 1 lost, green 0 won 1 lost"."""
        pairs = zip(self.arm_names, _known(state), strict=True)
        return ", ".join(f"{name} {won} won {lost} lost" for name, (won, lost) in pairs)

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """The agent that pulls random arms and writes correct notes."""
        return self.random_agent(lambda state, rng, _: rng.choice(self.arm_names), seed)


def _known(state: ArmsState) -> Counts:
    return add(state["carried"], state["counts"])
