"""Decision processes so small that every joint outcome of a group can be enumerated.

A node is what was done so far; the policy is a table with one softmax per state. `expectation` is
exact: it plays all `len(trajectories) ** G` groups at once, each weighted with its probability.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentsgym.credit import StepTable

Floats = NDArray[np.float64]
GROUP = 3


@dataclass(frozen=True)
class Move:
    """One step: where it was taken (`state`, an index into theta), what was done and earned."""

    episode: int
    step: int
    state: int
    action: int
    reward: float
    weight: float = 1.0


@dataclass(frozen=True)
class Process:
    """All trajectories of a process, and the policy's table theta of shape (S, A)."""

    theta: Floats
    trajectories: tuple[tuple[Move, ...], ...]

    @property
    def log_policy(self) -> Floats:
        """log π(a | s), shape (S, A)."""
        return self.theta - np.log(np.exp(self.theta).sum(axis=1, keepdims=True))

    def probabilities(self) -> Floats:
        """Probability of each trajectory."""
        logp = self.log_policy
        return np.array(
            [np.exp(sum(logp[m.state, m.action] for m in t)) for t in self.trajectories]
        )

    def objective(self, gamma: float = 1.0) -> float:
        """Expected weighted return, discounted by gamma^step."""
        return float(self.probabilities() @ [_value(t, gamma) for t in self.trajectories])

    def score(self, move: Move) -> Floats:
        """∇ log π(action | state) with respect to theta, shape (S, A)."""
        gradient = np.zeros_like(self.theta)
        gradient[move.state] = -np.exp(self.log_policy[move.state])
        gradient[move.state, move.action] += 1.0
        return gradient

    def true_gradient(self, gamma: float = 1.0) -> Floats:
        """∇J by the score function over all trajectories, shape (S, A)."""
        parts = [
            p * _value(t, gamma) * sum(self.score(m) for m in t)
            for p, t in zip(self.probabilities(), self.trajectories, strict=True)
        ]
        return np.sum(parts, axis=0)


def _value(trajectory: Sequence[Move], gamma: float) -> float:
    return sum(gamma**m.step * m.weight * m.reward for m in trajectory)


def stopping_process(seed: int = 0) -> Process:
    """3 steps, 3 actions, action 0 stops: 15 trajectories.

    The state is the step and the last action, so that histories share states. The reward depends
    on the whole history.
    """
    rng = np.random.default_rng(seed)
    states = {(0, 0): 0, (1, 1): 1, (1, 2): 2, (2, 1): 3, (2, 2): 4}
    theta = rng.normal(size=(5, 3))
    trajectories = []

    def extend(moves: tuple[Move, ...]) -> None:
        step = len(moves)
        state = states[step, moves[-1].action if moves else 0]
        for action in range(3):
            longer = (*moves, Move(0, step, state, action, float(rng.normal())))
            if action == 0 or step == 2:
                trajectories.append(longer)
            else:
                extend(longer)

    extend(())
    return Process(theta, tuple(trajectories))


def trial_process(weights: Sequence[float], seed: int = 0) -> Process:
    """Two episodes of up to 2 steps, 2 actions each, action 0 stops: 9 trials.

    Policy and rewards depend on the whole history, so the first episode is carried over.
    `weights` are the episodes' score weights; 0.0 makes a free shot.
    """
    rng = np.random.default_rng(seed)
    states: dict[object, int] = {}
    trajectories = []

    def extend(moves: tuple[Move, ...], episode: int, step: int) -> None:
        history = (*((m.episode, m.action) for m in moves), (episode,))
        state = states.setdefault(history, len(states))
        for action in range(2):
            move = Move(episode, step, state, action, float(rng.normal()), weights[episode])
            longer = (*moves, move)
            if action and step == 0:
                extend(longer, episode, 1)
            elif episode == 0:
                extend(longer, 1, 0)
            else:
                trajectories.append(longer)

    extend((), 0, 0)
    return Process(rng.normal(size=(len(states), 2)), tuple(trajectories))


def joint_table(process: Process, size: int = GROUP) -> tuple[StepTable, list[Move], Floats]:
    """Every group of `size` trajectories in one table, its moves, and each group's probability."""
    joint = list(itertools.product(range(len(process.trajectories)), repeat=size))
    chance = process.probabilities()
    chances = np.array([np.prod(chance[list(members)]) for members in joint])
    rollouts = [process.trajectories[i] for members in joint for i in members]
    moves = [move for rollout in rollouts for move in rollout]
    number = len(rollouts)
    table = StepTable(
        group=np.repeat(np.arange(len(joint)), size),
        live=np.ones(number, dtype=bool),
        final_reward=np.array([_mean_of_scored(t) for t in rollouts]),
        env=np.array(["env"] * number, dtype=object),
        rollout=np.repeat(np.arange(number), [len(t) for t in rollouts]),
        episode=np.array([m.episode for m in moves]),
        step=np.array([m.step for m in moves]),
        reward=np.array([m.reward for m in moves]),
        score_weight=np.array([m.weight for m in moves]),
        tokens=np.ones(len(moves), dtype=np.int64),
        reflection=np.zeros(len(moves), dtype=bool),
        anchor=np.array([str(m.state) for m in moves], dtype=object),
    )
    return table, moves, chances


def _mean_of_scored(trajectory: Sequence[Move]) -> float:
    scored = {m.episode for m in trajectory if m.weight > 0}
    return sum(m.weight * m.reward for m in trajectory) / len(scored)


Weights = Callable[[StepTable], Floats]


def constant(table: StepTable) -> Floats:
    """The weight of each step's loss under a constant normalizer: 1 / G."""
    return np.full(len(table.reward), 1.0 / GROUP)


def per_length(table: StepTable) -> Floats:
    """1 / (G · the rollout's tokens), as in loss types "grpo" and "sapo"."""
    return 1.0 / (GROUP * np.bincount(table.rollout)[table.rollout])


def per_all_tokens(table: StepTable) -> Floats:
    """1 / (all tokens of the group), as in loss types "dapo", "cispo" and "vespo"."""
    groups = table.group[table.rollout]
    return 1.0 / np.bincount(groups)[groups]


def expectation(
    process: Process, estimator: Callable[[StepTable], Floats], weights: Weights = constant
) -> Floats:
    """E[Σ weight · A · ∇ log π] over all groups, shape (S, A)."""
    table, moves, chances = joint_table(process)
    coefficient = chances[table.group[table.rollout]] * weights(table) * estimator(table)
    # The score depends on (state, action) alone, so coefficients are summed per pair first.
    per_pair = np.zeros_like(process.theta)
    index = np.array([m.state for m in moves]), np.array([m.action for m in moves])
    np.add.at(per_pair, index, coefficient)
    policy = np.exp(process.log_policy)
    return per_pair - per_pair.sum(axis=1, keepdims=True) * policy


@dataclass(frozen=True)
class Bias:
    """`error`: |g − true| / |true|. `scale`: the projection of g onto the truth. `turned`: the
    relative error that is left after the best rescaling of g, i.e. the sine of the angle."""

    error: float
    scale: float
    turned: float


def compare(gradient: Floats, truth: Floats) -> Bias:
    """How far a gradient is from the true one."""
    norm = np.linalg.norm(truth)
    inner = float((gradient * truth).sum())
    cosine = inner / (np.linalg.norm(gradient) * norm)
    return Bias(
        float(np.linalg.norm(gradient - truth) / norm),
        inner / float(norm) ** 2,
        float(np.sqrt(max(0.0, 1.0 - cosine**2))),
    )
