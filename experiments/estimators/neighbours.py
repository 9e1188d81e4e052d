"""Neighbours of the package's estimators, measured on the board beside them.

No preset uses them and the board (docs/results/credit-board.md) recommends none. Each is used by
its dotted path: `train.advantage_estimator=experiments.estimators.neighbours.max_rl` in a checkout.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from experiments.estimators.board import CHALLENGES, SIZES, Assign, Measured, exact
from experiments.estimators.processes import (
    Groups,
    Process,
    compare,
    every_group,
    groups_of,
    sets_of,
)

from agentsgym.credit import Estimator, StepTable, Variant
from agentsgym.credit.baselines import comparable, less_expected, trial_returns
from agentsgym.credit.estimators.rloo import rloo
from agentsgym.credit.estimators.trial import trial
from agentsgym.credit.table import without_rounding
from agentsgym.types import names
from agentsgym.types.rows import Floats

# -- another objective -----------------------------------------------------------------------------


def _max_rl(table: StepTable, *, centered: bool = True) -> Floats:
    """The final reward over the mean of the group, less 1 if `centered`, on every step, (N,).

    A = R / mean_j R_j − 1, the rollout itself included; 0 in a group whose mean is not above 0.

    Bias: for rewards 0 and 1, with p the chance of success and G rollouts, the expectation is the
    gradient of −Σ_{k=1}^{K} (1 − p)^k / k, the beginning of log p, with K = G − 1 if centered, else
    G: hard tasks weigh more. That of the mean reward is turned where tasks differ.
    Source: MaxRL, arXiv 2602.02710; the centered form is the one of prime-rl's code.
    """
    live = comparable(table)
    groups = np.unique(table.group, return_inverse=True)[1]
    reward = np.where(live, np.nan_to_num(table.final_reward), 0.0)
    mean = np.bincount(groups, reward) / np.maximum(np.bincount(groups, live), 1)
    above = without_rounding(mean[groups], table.size) > 0
    share = reward / np.where(above, mean[groups], 1.0)
    values = without_rounding(share - centered, np.abs(share).max(initial=1.0))
    return np.where(live & above, values, 0.0)[table.rollout]


# -- another baseline ------------------------------------------------------------------------------


def _batch_mean(table: StepTable) -> Floats:
    """The final reward minus the mean of the batch's other rollouts, whatever their tasks, (N,).

    Bias: none for the mean reward, as the baseline is made of other rollouts. It is what remains of
    a baseline if each task is played once.
    """
    live, reward = table.live, np.where(table.live, table.final_reward, 0.0)
    others = (reward[live].sum() - reward) / max(int(live.sum()) - 1, 1)
    difference = without_rounding(reward - others, np.abs(reward).max(initial=0.0))
    return np.where(live & (live.sum() > 1), difference, 0.0)[table.rollout]


def every_batch(process: Process, size: int) -> Groups:
    """All batches of `size` rollouts of a task each, which are drawn one by one."""
    chance = process.probabilities() / len(process.by_task)
    return groups_of(process, *sets_of(np.arange(len(chance)), chance, size))


# -- potentials ------------------------------------------------------------------------------------


def _shaped(table: StepTable) -> Floats:
    """As "trial", with rewards to which the gain of a potential is added, shape (N,).

    c_t + Φ_{t+1} − Φ_t for c_t, with Φ the column `value`, 0 after the last step: the sum from t on
    is Q_t − Φ_t. Bias: none, whatever Φ, if it depends on nothing that is done from the step on.
    Source: Ng, Harada and Russell 1999.
    """
    to_go = trial_returns(table, 1.0, 1.0) - table.value
    return less_expected(table, to_go, to_go)


def _gains(table: StepTable) -> Floats:
    """A step's own c_t + Φ_{t+1} − Φ_t, without what follows, shape (N,).

    Bias: none if Φ is what the policy itself earns from there on, also with what it cannot see;
    turned with any other, such as that of the best play. Source: the same differences of a solved
    game's values are the reward of CAST, arXiv 2607.25308, and of VPR, arXiv 2605.10325, known to
    us from summaries.
    """
    owner, value = table.rollout, table.value
    after = np.append(value[1:], 0.0) * np.append(owner[1:] == owner[:-1], False)
    return np.where(comparable(table)[owner], table.counted + after - value, 0.0)


def with_best_play(process: Process, groups: Groups, *, known: bool = False) -> Groups:
    """The groups with what the best play earns from each state on as their `value`; that of a
    player who knows the task, if `known`."""
    values, table = best_play(process, known=known), groups.table
    place = np.arange(len(table.rollout)) - np.searchsorted(table.rollout, table.rollout)
    played = groups.members.ravel()[table.rollout]
    found = [values[t][k] for t, k in zip(played.tolist(), place.tolist(), strict=True)]
    return replace(groups, table=replace(table, value=np.array(found)))


def best_play(process: Process, *, known: bool = False) -> list[list[float]]:
    """For each trajectory, before each of its steps, what the best play earns from there on. It
    remembers everything, and knows the task only as far as the states tell it, unless `known`."""
    moves = process.trajectories
    task = process.tasks or (0,) * len(moves)
    values = [[0.0] * len(one) for one in moves]

    def fill(some: Sequence[int], depth: int) -> float:
        """Fill in and return the value of some trajectories that look alike up to a depth."""
        worth = []
        for action in {moves[k][depth].action for k in some}:
            taken = [k for k in some if moves[k][depth].action == action]
            earned = {task[k]: moves[k][depth].weight * moves[k][depth].reward for k in taken}
            total = sum(earned.values())
            for part in _alike(process, [k for k in taken if len(moves[k]) > depth + 1], depth + 1):
                total += len({task[k] for k in part}) * fill(part, depth + 1)
            worth.append(total / len(earned))
        for k in some:
            values[k][depth] = max(worth)
        return max(worth)

    every = process.by_task if known else [np.arange(len(moves))]
    for own in every:
        for part in _alike(process, own.tolist(), 0):
            fill(part, 0)
    return values


def _alike(process: Process, some: Sequence[int], depth: int) -> Iterator[list[int]]:
    """Trajectories by the state in which they are at a depth."""
    states = {k: process.trajectories[k][depth].state for k in some}
    yield from ([k for k in some if states[k] == state] for state in sorted({*states.values()}))


# -- the entries, and their rows of the board ------------------------------------------------------

max_rl = Estimator(
    name="experiments.estimators.neighbours.max_rl",
    help="the final reward over the group's mean: hard tasks count more",
    assign=_max_rl,
    variants=(
        Variant(options={}, error=None, turned=None),
        Variant(options={"centered": False}, error=None, turned=None),
    ),
)
batch_mean = Estimator(
    name="experiments.estimators.neighbours.batch_mean",
    help="the final reward against the mean of the batch's other rollouts",
    assign=_batch_mean,
    over_batch=True,
    variants=(Variant(options={}, error=0.0, turned=0.0),),
)
shaped = Estimator(
    name="experiments.estimators.neighbours.shaped",
    help="as trial, less a potential of the state",
    assign=_shaped,
    reads_values=True,
    variants=(Variant(options={}, error=0.0, turned=0.0),),
)
gains = Estimator(
    name="experiments.estimators.neighbours.gains",
    help="what a step adds to a potential",
    assign=_gains,
    reads_values=True,
    variants=(Variant(options={}, error=None, turned=None),),
)

NEIGHBOURS = names.table(max_rl, batch_mean, shaped, gains)
"""The entries by their dotted paths."""


def rows(sizes: Sequence[int] = SIZES[:2]) -> Iterator[tuple[str, Measured]]:
    """Their figures on every process of the board, as of `board`. "batch of tasks" is "trial" with
    each task once; potentials are the policy's own values, those of the best play, and those of a
    player who knows the task."""
    for name, challenge in CHALLENGES.items():
        process, few = challenge.process, every_group(challenge.process, SIZES[0])
        unit = exact(process, few, rloo(few.table))[1] * SIZES[0]
        for size in sizes:
            own = every_group(process, size)
            potentials = {
                "policy": own,
                "best": with_best_play(process, own),
                "known": with_best_play(process, own, known=True),
            }
            cells: list[tuple[str, Groups, Assign]] = [
                ("max_rl", own, _max_rl),
                ("batch of tasks", every_batch(process, size), trial),
                *((f"shaped {label}", groups, _shaped) for label, groups in potentials.items()),
                *((f"gains {label}", groups, _gains) for label, groups in potentials.items()),
            ]
            for label, groups, assign in cells:
                mean, variance = exact(process, groups, assign(groups.table))
                bias = compare(mean, process.true_gradient())
                noise = variance * size / unit / bias.scale**2 if bias.scale > 1e-9 else np.inf
                yield label, Measured(name, size, bias.error, bias.turned, noise)
