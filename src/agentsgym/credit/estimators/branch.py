"""A branch's return against its siblings', and the trunk's by the mean of what follows it."""

from collections import defaultdict
from statistics import fmean

import numpy as np

from agentsgym.credit.baselines import (
    change_of_others,
    comparable,
    episode_starts,
    trial_returns,
)
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import StepTable, without_rounding
from agentsgym.types.rows import Flags, Floats, Ints

Earned = dict[tuple[int, ...], dict[int, list[float]]]
"""What is compared → who earned it → how much."""

_GROUP, _LATER = -1, -2


def branch(table: StepTable) -> Floats:
    """Return-to-go against that of what begins at the same place, shape (N,).

    A trunk i whose B branches leave it before step n has B + 1 continuations, its own among them,
    of which L did not fail. Q_t is what is still to be earned in the trial, as in "trial". In a
    continuation b, t ≥ n:
    A_t = (B + 1) / L · (Q_t^b − mean_{c≠b} Q^c), the mean over the trunk's other continuations,
    from n on, or in a later episode from its start, with the mean over those of the group's other
    trunks as one more. In the trunk before n:
    A_t = (B + 1) · (Σ_{t ≤ k < n} c_k + mean_b Q_n^b − mean_{j≠i} Q^j), the last mean over the
    group's other trunks at the start of the same episode, each with the mean of its continuations.
    What the other trunks earned from there to the step is subtracted from each mean, as in "trial".
    The factors B + 1 stand for what plain rollouts would do B + 1 times. Branches from n = 0 are
    rollouts of their own, compared as trunks are, and the trunk that they were meant for counts
    B + 1 times. Steps that a branch repeats have 0. Without branches this is "trial".

    Bias: none, if whether branches leave a trunk at n depends on nothing that it did from n on.
    Given the steps before n, Σ_b ∇ log π(continuation b)·(Q^b − baseline) / L has the expectation
    ∇V(n), as every baseline is made of others; and mean_b Q_n^b has the expectation V(n), so that
    the trunk's part has that of ∇ log π(steps before n)·V(n), and their sum that of the gradient.
    Branches from n = 0 add to it as whole rollouts do, so they make its expectation longer alone.
    A split that looks at the trunk's later steps, its length among them, is biased.
    Source: vine sampling (Schulman et al. 2015, TRPO, arXiv 1502.05477; VinePPO, Kazemnejad et al.
    2024, arXiv 2410.01679), with leave-one-out baselines (Kool et al. 2019).
    """
    owner, live = table.rollout, table.live
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    splits, trunk = _splits(table), table.trunk[owner]
    split = splits[owner]
    own, after = ~table.replayed & live[owner], (split > 0) & (place >= split)
    value = trial_returns(table, 1.0, 1.0)
    change = change_of_others(table, value, trunk)
    value += np.where(own & ~after, _surplus(table, value, place == split, splits)[owner], 0.0)
    starts = np.zeros(len(owner), np.bool_)
    starts[episode_starts(table)] = True
    begins = own & (starts | (after & (place == split)))

    group, episode = table.group[owner], table.episode
    earned: Earned = defaultdict(lambda: defaultdict(list))
    for k in np.flatnonzero(begins):
        if after[k]:
            earned[trunk[k], episode[k]][owner[k]].append(value[k])
            earned[_LATER, group[k], episode[k]][trunk[k]].append(value[k])
        if starts[k]:
            earned[_GROUP, group[k], episode[k]][trunk[k]].append(value[k])

    alone = np.arange(len(live))
    planned = np.bincount(table.trunk, minlength=len(live))
    playing = np.maximum(np.bincount(table.trunk, live, len(live)), 1)
    baseline = np.zeros(len(owner))
    for k in np.flatnonzero(own):
        if not begins[k]:
            baseline[k] = baseline[k - 1]
            continue
        others = _others(trunk[k], earned[_LATER if after[k] else _GROUP, group[k], episode[k]])
        if after[k]:
            siblings = _others(owner[k], earned[trunk[k], episode[k]])
            others = [*siblings, fmean(others)] if others else siblings
        baseline[k] = fmean(others) if others else 0.0
    begun = np.maximum.accumulate(np.where(begins, np.arange(len(owner)), 0))
    baseline += change - change[begun]
    difference = without_rounding(value - baseline, table.size[owner])
    before = np.where(table.trunk == alone, planned, 1)[owner]
    times = np.where(after, (planned / playing)[trunk], before)
    return np.where(own & comparable(table)[owner], times * difference, 0.0)


def _splits(table: StepTable) -> Ints:
    """The number of the step before which branches left each rollout's trunk, shape (R,); 0 where
    none did. Raises ValueError if they left it at different ones."""
    repeated = np.bincount(table.rollout, table.replayed, len(table.group)).astype(np.int64)
    branches = table.live & (table.trunk != np.arange(len(table.group)))
    splits = np.zeros(len(repeated), np.int64)
    np.maximum.at(splits, table.trunk[branches], repeated[branches])
    bad = branches & (repeated != splits[table.trunk])
    if bad.any():
        group, index = (column[table.trunk[bad][0]] for column in (table.group, table.index))
        raise ValueError(
            f"branches leave rollout {index} of group {group} at different steps; the estimator "
            "'branch' compares those that leave it at one"
        )
    return splits[table.trunk]


def _surplus(table: StepTable, to_go: Floats, at_split: Flags, splits: Ints) -> Floats:
    """How much more a trunk's continuations earn on average than its own, shape (R,)."""
    own = np.bincount(table.rollout, np.where(at_split, to_go, 0.0), len(table.group))
    of_trunk = np.bincount(table.trunk, np.where(table.live, own, 0.0), len(own))
    mean = of_trunk / np.maximum(np.bincount(table.trunk, table.live, len(own)), 1)
    return np.where(splits > 0, mean - own, 0.0)


def _others(one: int, earned: dict[int, list[float]]) -> list[float]:
    """What each other one earned, by the mean of its own."""
    return [fmean(values) for other, values in earned.items() if other != one]


ESTIMATOR = Estimator(
    name="branch",
    help="a branch's return minus its siblings' mean; before branching, the branches' mean",
    assign=branch,
    reads_branches=True,
    variants=(Variant(options={}, error=0.0, turned=0.0),),
)
