"""Decision processes so small that every group of their rollouts can be enumerated.

The policy of a `Process` is a table with one softmax per state, so expectations are exact:

    groups = every_group(process, 4)
    advantages = rloo(groups.table)
    each = gradients(process, groups, advantages[groups.tokens.step] / 4)
    expected = np.tensordot(groups.chance, each, 1)  # compare with process.true_gradient()

Groups that another policy sampled are those of a process with its table, and a token's coefficient
may depend on both policies: `sampler = replace(process, theta=other)`, `every_group(sampler, 4)`,
and the log-probabilities of the tokens are `process.log_policy[tokens.state, tokens.action]` and
the sampler's.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from agentsgym.credit.table import StepTable, objects
from agentsgym.types.rows import Floats, Ints


@dataclass(frozen=True, slots=True)
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
    """All trajectories of a process, and the policy's table theta of shape (S, A), -inf for an
    action that a state does not have.

    `tasks` is the task of each trajectory (if not given there is one). Tasks are equally likely,
    and the rollouts of a group share theirs; the policy sees it only through the states.
    """

    theta: Floats
    trajectories: tuple[tuple[Move, ...], ...]
    tasks: tuple[int, ...] = ()

    @property
    def by_task(self) -> list[Ints]:
        """The trajectories of each task, as indices."""
        tasks = np.array(self.tasks or (0,) * len(self.trajectories))
        return [np.flatnonzero(tasks == task) for task in np.unique(tasks)]

    @property
    def log_policy(self) -> Floats:
        """log π(a | s), shape (S, A)."""
        total: Floats = np.log(np.exp(self.theta).sum(axis=1, keepdims=True))
        return self.theta - total

    def probabilities(self) -> Floats:
        """Probability of each trajectory, given its task."""
        logp = self.log_policy
        return np.array(
            [np.exp(sum(logp[m.state, m.action] for m in t)) for t in self.trajectories]
        )

    def values(self) -> Floats:
        """The return of each trajectory."""
        return np.array([sum(m.weight * m.reward for m in t) for t in self.trajectories])

    def state_values(self) -> Floats:
        """What is still to be earned after each state on average, shape (S,): an exact critic."""
        total, visits = np.zeros((2, len(self.theta)))
        for chance, trajectory in zip(self.probabilities(), self.trajectories, strict=True):
            rest = 0.0
            for move in reversed(trajectory):
                rest += move.weight * move.reward
                total[move.state] += chance * rest
                visits[move.state] += chance
        return total / np.where(visits > 0, visits, 1.0)

    def true_gradient(self) -> Floats:
        """∇J, J the expected return, by the score function over all trajectories, shape (S, A)."""
        alone = every_group(self, 1)
        value = alone.table.final_reward[alone.table.rollout[alone.tokens.step]]
        result: Floats = np.tensordot(alone.chance, gradients(self, alone, value), 1)
        return result


class Tokens(NamedTuple):
    """Of each token in a table: its step, the state that it was chosen in, and the token, (T,)."""

    step: Ints
    state: Ints
    action: Ints


@dataclass(frozen=True)
class Groups:
    """M groups of trajectories: `members` (M, G) indices into the process's trajectories, the
    `chance` of each group (M,), and all of them in one `table` with the `tokens` of its steps."""

    members: Ints
    chance: Floats
    table: StepTable
    tokens: Tokens


def every_group(process: Process, size: int) -> Groups:
    """All groups of `size` rollouts, each set of trajectories once, whatever their order."""
    probability = process.probabilities()
    members, chance = [], []
    for own in process.by_task:
        sets, chances = sets_of(own, probability[own], size)
        members.append(sets)
        chance.append(chances / len(process.by_task))
    return groups_of(process, np.concatenate(members), np.concatenate(chance))


def sets_of(things: Ints, chance: Floats, size: int) -> tuple[Ints, Floats]:
    """All sets of `size` of these things, shape (M, size), that draws with replacement may give,
    and their chances."""
    orders = np.array([math.factorial(k) for k in range(size + 1)], dtype=np.float64)
    sets = np.array(list(itertools.combinations_with_replacement(things.tolist(), size)))
    counts = (sets[:, :, None] == things).sum(axis=1)
    return sets, (chance**counts / orders[counts]).prod(axis=1) * orders[size]


Trajectory = tuple[Move, ...]


def every_branched_group(
    process: Process, trunks: int, branches: int, split: Callable[[Trajectory], int]
) -> Groups:
    """All groups of `trunks` trajectories, each followed by `branches` that leave it before step
    number `split(trajectory)`. Where that is 0, they are other rollouts of the task."""
    probability = process.probabilities()
    members, chance = [], []
    for own in process.by_task:
        families, chances = [], []
        for trunk in own.tolist():
            shared = _shared(process.trajectories[trunk], split)
            same = [k for k in own.tolist() if process.trajectories[k][: len(shared)] == shared]
            given = probability[same] / probability[same].sum()
            sets, parts = sets_of(np.array(same), given, branches)
            families += [(trunk, *others) for others in sets.tolist()]
            chances += (parts * probability[trunk]).tolist()
        sets, parts = sets_of(np.arange(len(families)), np.array(chances), trunks)
        members.append(np.array(families)[sets].reshape(len(sets), -1))
        chance.append(parts / len(process.by_task))
    groups = groups_of(process, np.concatenate(members), np.concatenate(chance))
    place = np.arange(groups.members.size)
    trunk = place - place % (1 + branches)
    repeated = np.array([len(_steps(_shared(t, split))) for t in process.trajectories])
    own_trunk = trunk[groups.table.rollout]
    first = np.searchsorted(groups.table.rollout, groups.table.rollout)
    number = np.arange(len(first)) - first
    replayed = (number < repeated[groups.members.ravel()[own_trunk]]) & (
        own_trunk != groups.table.rollout
    )
    return replace(groups, table=replace(groups.table, trunk=trunk, replayed=replayed))


def _shared(trajectory: Trajectory, split: Callable[[Trajectory], int]) -> Trajectory:
    """The moves before the step at which branches leave a trajectory."""
    steps = _steps(trajectory)[: split(trajectory)]
    return tuple(move for step in steps for move in step)


def groups_of(process: Process, members: Ints, chance: Floats) -> Groups:
    """The given groups in one table, whose `choices` are all of the policy's, and the `value` of a
    step that of its state."""
    by_step = [_steps(trajectory) for trajectory in process.trajectories]
    steps = [step for trajectory in by_step for step in trajectory]
    moves = [move for step in steps for move in step]
    policy = [dict(enumerate(row)) for row in np.exp(process.log_policy).tolist()]
    rollouts = members.ravel()
    length, width = np.array([len(t) for t in by_step]), np.array([len(s) for s in steps])
    at = _ranges((np.cumsum(length) - length)[rollouts], length[rollouts])
    token = _ranges((np.cumsum(width) - width)[at], width[at])
    table = StepTable(
        group=np.repeat(np.arange(len(members)), members.shape[1]),
        index=np.tile(np.arange(members.shape[1]), len(members)),
        live=np.ones(members.size, dtype=np.bool_),
        final_reward=process.values()[rollouts],
        env=objects(["env"] * members.size),
        rollout=np.repeat(np.arange(members.size), length[rollouts]),
        episode=np.array([s[0].episode for s in steps])[at],
        step=np.array([s[0].step for s in steps])[at],
        reward=np.array([sum(m.reward for m in s) for s in steps], dtype=np.float64)[at],
        score_weight=np.array([s[0].weight for s in steps])[at],
        penalty=np.zeros(len(at)),
        tokens=width[at],
        reflection=np.array([s[0].note for s in steps])[at],
        anchor=objects([str(s[0].state) for s in steps])[at],
        action=objects([tuple(m.action for m in s) for s in steps])[at],
        choices=objects([tuple(policy[m.state] for m in s) for s in steps])[at],
        value=process.state_values()[[s[0].state for s in steps]][at],
        trunk=np.arange(members.size),
        replayed=np.zeros(len(at), dtype=np.bool_),
    )
    state, action = np.array([(m.state, m.action) for m in moves])[token].T
    owner = np.repeat(np.arange(len(at)), width[at])
    return Groups(members, chance, table, Tokens(owner, state, action))


def _ranges(first: Ints, length: Ints) -> Ints:
    """first[k], first[k] + 1, …, `length[k]` numbers for each k."""
    before = np.cumsum(length) - length
    result: Ints = np.repeat(first - before, length) + np.arange(length.sum())
    return result


def _steps(trajectory: Sequence[Move]) -> list[tuple[Move, ...]]:
    """The moves of each step."""
    keyed = itertools.groupby(trajectory, key=lambda m: (m.episode, m.step))
    return [tuple(moves) for _, moves in keyed]


def gradients(process: Process, groups: Groups, coefficient: Floats) -> Floats:
    """Σ coefficient · ∇ log π over the tokens of each group, shape (M, S, A); `coefficient` (T,)
    has one number per token."""
    tokens, shape = groups.tokens, (len(groups.chance), *process.theta.shape)
    group = groups.table.group[groups.table.rollout[tokens.step]]
    # The score depends on (state, action) alone, so coefficients are summed per pair first.
    pair = np.ravel_multi_index((group, tokens.state, tokens.action), shape)
    sums = np.bincount(pair, weights=coefficient, minlength=math.prod(shape)).reshape(shape)
    result: Floats = sums - sums.sum(axis=2, keepdims=True) * np.exp(process.log_policy)
    return result


@dataclass(frozen=True, slots=True)
class Bias:
    """`error`: |g − true| / |true|. `scale`: the projection of g onto the truth. `turned`: the
    relative error that is left after the best rescaling of g, i.e. the sine of the angle; 1 where
    g is 0."""

    error: float
    scale: float
    turned: float


def compare(gradient: Floats, truth: Floats) -> Bias:
    """How far a gradient is from the true one."""
    square, norm = float((truth**2).sum()), float(np.linalg.norm(gradient))
    scale = float((gradient * truth).sum()) / square
    beside = float(np.linalg.norm(gradient - scale * truth))
    error = float(np.linalg.norm(gradient - truth)) / math.sqrt(square)
    return Bias(error, scale, beside / norm if norm else 1.0)
