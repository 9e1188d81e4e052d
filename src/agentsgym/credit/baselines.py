"""What estimators share: means over comparable steps, keys that say which these are, returns."""

from collections.abc import Hashable, Sequence

import numpy as np

from agentsgym.credit.table import StepTable, without_rounding
from agentsgym.types.rows import Flags, Floats, Ints

Keys = Sequence[Hashable]
"""A key for each step, shape (N,); steps with equal keys are compared."""


# -- means -----------------------------------------------------------------------------------------


def leave_one_out(values: Floats, owners: Ints, keys: Keys, fallback: Floats) -> Floats:
    """Mean of `values` over the *other* owners with the same key, shape (N,); `fallback` (shape
    (N,)) where no other owner has the key."""
    mean, others = mean_of_others(values, owners, keys)
    return np.where(others > 0, mean, fallback)


def mean_of_others(values: Floats, owners: Ints, keys: Keys) -> tuple[Floats, Ints]:
    """Mean of `values` over the *other* owners with the same key (NaN where there is none), and
    their number, both of shape (N,).

    An owner (a rollout) with several values under a key counts once, with their mean.
    """
    key = _numbered(keys)
    owned = _numbered(list(zip(key.tolist(), owners.tolist(), strict=True)))
    first = np.unique(owned, return_index=True)[1]
    mean = np.bincount(owned, values) / np.bincount(owned)
    total, number = np.bincount(key[first], mean), np.bincount(key[first])
    others: Ints = number[key] - 1
    return (total[key] - mean[owned]) / np.where(others > 0, others, np.nan), others


def normalized(
    values: Floats, keys: Keys, size: Floats, *, scale: bool = False, ddof: int = 1
) -> Floats:
    """`values` minus the mean of all with the same key, shape (N,), NaN where only one has it; with
    `scale` divided by their standard deviation + 1e-6. `size` is that of the rewards, (N,)."""
    key = _numbered(keys)
    number = np.bincount(key)
    centered = without_rounding(values - (np.bincount(key, values) / number)[key], size)
    if scale:
        squares = np.bincount(key, centered**2) / np.maximum(number - ddof, 1)
        centered /= np.sqrt(squares)[key] + 1e-6
    return np.where(number[key] > 1, centered, np.nan)


def _numbered(keys: Keys) -> Ints:
    """Keys as whole numbers from 0, in the order in which they occur."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


# -- baselines of rollouts ------------------------------------------------------------------------


def less_group_mean(table: StepTable) -> Floats:
    """Each rollout's final reward minus its group's mean, the rollout itself included, shape (R,);
    0 where it is not comparable."""
    per_rollout = np.zeros(len(table.group))
    compared = comparable(table)
    for group in np.unique(table.group[compared]):
        members = np.flatnonzero((table.group == group) & compared)
        rewards = table.final_reward[members]
        per_rollout[members] = without_rounding(rewards - rewards.mean(), table.size[members])
    return per_rollout


def rloo_per_rollout(table: StepTable) -> Floats:
    """The leave-one-out advantage of each rollout, shape (R,); 0 where it is not comparable."""
    per_rollout = np.zeros(len(table.group))
    members = np.flatnonzero(comparable(table))
    rewards = table.final_reward[members]
    groups = table.group[members].tolist()
    baseline = leave_one_out(rewards, members, groups, np.zeros(len(members)))
    per_rollout[members] = without_rounding(rewards - baseline, table.size[members])
    return per_rollout


# -- which steps belong together -------------------------------------------------------------------


def state_keys(table: StepTable) -> Keys:
    """Keys that are equal for steps of a group with equal anchors. Steps of free shots and of
    rollouts without a comparison have others."""
    live = comparable(table)[table.rollout]
    columns = table.group[table.rollout], table.score_weight > 0, live, table.anchor
    return list(zip(*(column.tolist() for column in columns), strict=True))


def step_keys(table: StepTable) -> Keys:
    """Keys that are equal for the same step of the same episode in rollouts of a group: after as
    many actions, with notes apart. Steps of rollouts without a comparison have others."""
    live = comparable(table)[table.rollout]
    columns = table.group[table.rollout], table.episode, table.reflection, actions_before(table)
    return list(zip(*(column.tolist() for column in (*columns, live)), strict=True))


def comparable(table: StepTable) -> Flags:
    """Bool per rollout, (R,): live, and not the only live one of its group.

    A rollout that cannot be compared with another gets advantage 0 from every estimator.
    """
    groups, numbers = np.unique(table.group[table.live], return_counts=True)
    several = np.isin(table.group, groups[numbers > 1])
    result: Flags = table.live & several
    return result


# -- episodes --------------------------------------------------------------------------------------


def returns_to_go(table: StepTable, gamma: float = 1.0) -> Floats:
    """Discounted sum of what counts in the final reward, from each step to its episode's end, (N,).

    G_t = Σ_{k ≥ t} gamma^(k−t) · c_k within the episode, c_k = w · r_k (`StepTable.counted`).
    """
    counted, following = table.counted, next_step(table)
    result = np.zeros(len(counted))
    for i in range(len(counted) - 1, -1, -1):
        result[i] = counted[i] + (gamma * result[i + 1] if following[i] >= 0 else 0.0)
    return result


def episode_starts(table: StepTable) -> Ints:
    """Indices of the first step of each episode."""
    place = np.stack([table.rollout, table.episode])
    new = (place[:, 1:] != place[:, :-1]).any(axis=0)
    return np.flatnonzero(np.concatenate([np.ones(min(1, place.shape[1]), np.bool_), new]))


def episode_lengths(table: StepTable) -> Ints:
    """Number of steps of each episode."""
    return np.diff([*episode_starts(table), len(table.reward)])


def next_step(table: StepTable) -> Ints:
    """Index of the episode's next step, shape (N,); −1 after the last one."""
    following = np.arange(1, len(table.reward) + 1)
    following[np.cumsum(episode_lengths(table)) - 1] = -1
    return following


def actions_before(table: StepTable) -> Ints:
    """The number of the episode's actions before each step, shape (N,)."""
    actions = (~table.reflection).astype(np.int64)
    before = np.cumsum(actions) - actions
    result: Ints = before - np.repeat(before[episode_starts(table)], episode_lengths(table))
    return result


# -- trials ---------------------------------------------------------------------------------------


def trial_returns(table: StepTable, gamma: float, trial_gamma: float) -> Floats:
    """Q_t of each step: what is still to be earned in the trial, shape (N,)."""
    return returns_to_go(table, gamma) + _later_episodes(table, trial_gamma)


def less_expected(table: StepTable, to_go: Floats, earned_to_go: Floats) -> Floats:
    """`to_go` minus what the group's other rollouts say of the step, shape (N,): the mean of theirs
    at the start of the same episode, and the change of their `earned_to_go`, shape (N,), since
    then (`change_of_others`)."""
    live = comparable(table)[table.rollout]
    groups = table.group[table.rollout]
    starts = episode_starts(table)
    keys = [(int(groups[i]), int(table.episode[i]), bool(live[i])) for i in starts]
    at_start = leave_one_out(to_go[starts], table.rollout[starts], keys, np.zeros(len(starts)))
    expected = np.repeat(at_start, episode_lengths(table))
    expected += change_of_others(table, earned_to_go, table.rollout)
    difference = without_rounding(to_go - expected, table.size[table.rollout])
    return np.where(live, difference, 0.0)


def change_of_others(table: StepTable, to_go: Floats, owners: Ints) -> Floats:
    """The change of `to_go` from the episode's start to the same step, as a mean over the other
    owners that reached it, shape (N,). Where none did, it is that of the step before.

    Added to the mean at the start, it makes a baseline without what was earned before the step. It
    is 0 at an episode's start, and everywhere if undiscounted rewards come at the end alone.
    """
    starts, place = episode_starts(table), np.arange(len(to_go))
    changed = to_go - np.repeat(to_go[starts], episode_lengths(table))
    mean, others = mean_of_others(changed, owners, step_keys(table))
    known = (others > 0) | np.isin(place, starts)
    return np.where(others > 0, mean, 0.0)[np.maximum.accumulate(np.where(known, place, 0))]


def _later_episodes(table: StepTable, trial_gamma: float) -> Floats:
    """Σ_{e' > e} trial_gamma^(e'−e) · w_{e'} · R_{e'} for each step, shape (N,)."""
    starts, counted = episode_starts(table), table.counted
    ends = [*starts[1:], len(table.reward)][: len(starts)]
    scores = [float(counted[a:b].sum()) for a, b in zip(starts, ends, strict=True)]
    later = np.zeros(len(table.reward))
    after = 0.0
    for k in range(len(starts) - 1, -1, -1):
        last = k + 1 == len(starts) or table.rollout[starts[k + 1]] != table.rollout[starts[k]]
        if last:
            after = 0.0
        else:
            gap = int(table.episode[starts[k + 1]] - table.episode[starts[k]])
            after = trial_gamma**gap * (scores[k + 1] + after)
        later[starts[k] : ends[k]] = after
    return later
