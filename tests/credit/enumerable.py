"""Decision processes so small that every joint outcome of a group can be enumerated.

A node is what was done so far; the policy is a table with one softmax per state. `expectation` is
exact: it plays all `len(trajectories) ** G` groups at once, each weighted with its probability.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agentsgym.credit import StepTable
from agentsgym.credit.table import objects
from agentsgym.types.records import Floats, Ints

GROUP = 3


@dataclass(frozen=True)
class Move:
    """One step, or one token of it: where it was taken (`state`, an index into theta), what was
    done and earned, and the `weight` of its reward in the return. `token` is the position in the
    step's action; a `note` is no action."""

    episode: int
    step: int
    state: int
    action: int
    reward: float
    weight: float = 1.0
    token: int = 0
    note: bool = False


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

    def score(self, state: int, action: int) -> Floats:
        """∇ log π(action | state) with respect to theta, shape (S, A)."""
        gradient = np.zeros_like(self.theta)
        gradient[state] = -np.exp(self.log_policy[state])
        gradient[state, action] += 1.0
        return gradient

    def true_gradient(self, gamma: float = 1.0) -> Floats:
        """∇J by the score function over all trajectories, shape (S, A)."""
        parts = [
            p * _value(t, gamma) * sum(self.score(m.state, m.action) for m in t)
            for p, t in zip(self.probabilities(), self.trajectories, strict=True)
        ]
        return np.sum(parts, axis=0)


def _value(trajectory: Sequence[Move], gamma: float) -> float:
    return sum(gamma**m.step * m.weight * m.reward for m in trajectory)


class Tokens(NamedTuple):
    """Of each token in a table: its step, the state that it was chosen in, and the token."""

    step: Ints
    state: Ints
    action: Ints


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


def noted_process(seed: int = 0) -> Process:
    """Action 0 stops, 1 leads to a note and then to a last action, 2 to the last action alone:
    13 trajectories. The policy depends on the whole history, so the last action sees the note.
    """
    rng = np.random.default_rng(seed)
    states: dict[object, int] = {}
    trajectories = []

    def extend(moves: tuple[Move, ...]) -> None:
        history = tuple(m.action for m in moves)
        state = states.setdefault(history, len(states))
        for action in range(3):
            note = history == (1,)
            reward = 0.0 if note else float(rng.normal())
            longer = (*moves, Move(0, len(moves), state, action, reward, note=note))
            if (history == () and action == 0) or (history and not note):
                trajectories.append(longer)
            else:
                extend(longer)

    extend(())
    return Process(rng.normal(size=(len(states), 3)), tuple(trajectories))


def trial_process(weights: Sequence[float], seed: int = 0) -> Process:
    """Two episodes of up to 2 steps, 2 actions each, action 0 stops: 9 trials.

    Policy and rewards depend on the whole history, so the first episode is carried over.
    `weights` are 1.0 for a scored episode, 0.0 for a free shot; the return is the mean over the
    scored ones.
    """
    rng = np.random.default_rng(seed)
    shares = np.array(weights) / np.count_nonzero(weights)
    states: dict[object, int] = {}
    trajectories = []

    def extend(moves: tuple[Move, ...], episode: int, step: int) -> None:
        history = (*((m.episode, m.action) for m in moves), (episode,))
        state = states.setdefault(history, len(states))
        for action in range(2):
            move = Move(episode, step, state, action, float(rng.normal()), float(shares[episode]))
            longer = (*moves, move)
            if action and step == 0:
                extend(longer, episode, 1)
            elif episode == 0:
                extend(longer, 1, 0)
            else:
                trajectories.append(longer)

    extend((), 0, 0)
    return Process(rng.normal(size=(len(states), 2)), tuple(trajectories))


def spelled_process(weights: Sequence[float], seed: int = 0) -> Process:
    """Episodes of one step, whose action is token 0, or token 1 and one more: 3 actions.

    The policy depends on the whole history; an action earns the same in every episode, and some
    noise of its own where it is taken. `weights` as in `trial_process`.
    """
    rng = np.random.default_rng(seed)
    shares = np.array(weights) / np.count_nonzero(weights)
    worth = rng.normal(size=3)
    states: dict[object, int] = {}
    trajectories = []

    def extend(moves: tuple[Move, ...], episode: int) -> None:
        if episode == len(weights):
            trajectories.append(moves)
            return
        history = tuple(m.action for m in moves)
        first = states.setdefault((episode, history), len(states))
        second = states.setdefault((episode, history, 1), len(states))
        look, *spelled = worth + rng.normal(size=3) / 2
        weight = float(shares[episode])
        extend((*moves, Move(episode, 0, first, 0, float(look), weight)), episode + 1)
        for action, reward in enumerate(spelled):
            begun = Move(episode, 0, first, 1, 0.0, weight)
            ended = Move(episode, 0, second, action, float(reward), weight, token=1)
            extend((*moves, begun, ended), episode + 1)

    extend((), 0)
    return Process(rng.normal(size=(len(states), 2)), tuple(trajectories))


def joint_table(process: Process, size: int = GROUP) -> tuple[StepTable, Tokens, Floats]:
    """Every group of `size` trajectories in one table, the tokens of its steps, and each group's
    probability."""
    joint = list(itertools.product(range(len(process.trajectories)), repeat=size))
    chance = process.probabilities()
    chances = np.array([np.prod(chance[list(members)]) for members in joint])
    return *table_of_groups(process, joint), chances


def table_of_groups(process: Process, joint: Sequence[Sequence[int]]) -> tuple[StepTable, Tokens]:
    """Groups of equally many trajectories in one table, and the tokens of its steps. Its `choices`
    are all of the policy's."""
    size = len(joint[0])
    by_step = [_steps(trajectory) for trajectory in process.trajectories]
    rollouts = [by_step[i] for members in joint for i in members]
    steps = [step for rollout in rollouts for step in rollout]
    number = len(rollouts)
    policy = [dict(enumerate(row)) for row in np.exp(process.log_policy).tolist()]
    table = StepTable(
        group=np.repeat(np.arange(len(joint)), size),
        live=np.ones(number, dtype=bool),
        final_reward=np.array(
            [_value(process.trajectories[i], gamma=1.0) for members in joint for i in members]
        ),
        env=np.array(["env"] * number, dtype=object),
        rollout=np.repeat(np.arange(number), [len(t) for t in rollouts]),
        episode=np.array([s[0].episode for s in steps]),
        step=np.array([s[0].step for s in steps]),
        reward=np.array([sum(m.reward for m in s) for s in steps]),
        score_weight=np.array([s[0].weight for s in steps]),
        tokens=np.array([len(s) for s in steps]),
        reflection=np.array([s[0].note for s in steps]),
        anchor=np.array([str(s[0].state) for s in steps], dtype=object),
        action=objects([tuple(m.action for m in s) for s in steps]),
        choices=objects([tuple(policy[m.state] for m in s) for s in steps]),
    )
    owner = np.repeat(np.arange(len(steps)), table.tokens)
    moves = [m for s in steps for m in s]
    at = np.array([m.state for m in moves]), np.array([m.action for m in moves])
    return table, Tokens(owner, *at)


def _steps(trajectory: Sequence[Move]) -> list[tuple[Move, ...]]:
    """The moves of each step."""
    keyed = itertools.groupby(trajectory, key=lambda m: (m.episode, m.step))
    return [tuple(moves) for _, moves in keyed]


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
    table, tokens, chances = joint_table(process)
    coefficient = chances[table.group[table.rollout]] * weights(table) * estimator(table)
    # The score depends on (state, action) alone, so coefficients are summed per pair first.
    per_pair = np.zeros_like(process.theta)
    np.add.at(per_pair, (tokens.state, tokens.action), coefficient[tokens.step])
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
