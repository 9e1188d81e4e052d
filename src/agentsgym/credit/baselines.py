"""Leave-one-out means and returns, shared by the estimators."""

from collections.abc import Hashable, Sequence

import numpy as np

from agentsgym.credit.table import StepTable
from agentsgym.types.records import Flags, Floats, Ints


def leave_one_out(
    values: Floats, owners: Ints, keys: Sequence[Hashable], fallback: Floats
) -> Floats:
    """Mean of `values` over the *other* owners with the same key, shape (N,).

    An owner (a rollout) with several values under a key counts once, with their mean. `fallback`
    (shape (N,)) is used if no other owner has the key.
    """
    means: dict[Hashable, dict[int, list[float]]] = {}
    for value, owner, key in zip(values, owners, keys, strict=True):
        means.setdefault(key, {}).setdefault(int(owner), []).append(float(value))
    owner_mean = {
        key: {owner: sum(vs) / len(vs) for owner, vs in owned.items()}
        for key, owned in means.items()
    }
    totals = {key: (sum(owned.values()), len(owned)) for key, owned in owner_mean.items()}
    result = fallback.copy()
    for i, (owner, key) in enumerate(zip(owners, keys, strict=True)):
        total, number = totals[key]
        if number > 1:
            result[i] = (total - owner_mean[key][int(owner)]) / (number - 1)
    return result


def returns_to_go(table: StepTable, gamma: float = 1.0) -> Floats:
    """Discounted sum of what counts in the final reward, from each step to its episode's end, (N,).

    G_t = Σ_{k ≥ t} gamma^(k−t) · c_k within the episode, c_k = w · r_k (`StepTable.counted`).
    """
    counted = table.counted
    result = np.zeros(len(counted))
    after = 0.0
    for i in range(len(counted) - 1, -1, -1):
        last = i + 1 == len(counted) or _starts_episode(table, i + 1)
        after = counted[i] + (0.0 if last else gamma * after)
        result[i] = after
    return result


def _starts_episode(table: StepTable, i: int) -> bool:
    return bool(
        i == 0
        or table.rollout[i] != table.rollout[i - 1]
        or table.episode[i] != table.episode[i - 1]
    )


def episode_starts(table: StepTable) -> Ints:
    """Indices of the first step of each episode."""
    return np.array(
        [i for i in range(len(table.reward)) if _starts_episode(table, i)], dtype=np.int64
    )


def actions_before(table: StepTable) -> Ints:
    """The number of the episode's actions before each step, shape (N,)."""
    starts = episode_starts(table)
    actions = (~table.reflection).astype(np.int64)
    before = np.cumsum(actions) - actions
    lengths = np.diff([*starts, len(actions)])
    result: Ints = before - np.repeat(before[starts], lengths)
    return result


def comparable(table: StepTable) -> Flags:
    """Bool per rollout, (R,): live, and not the only live one of its group.

    A rollout that cannot be compared with another gets advantage 0 from every estimator.
    """
    groups, numbers = np.unique(table.group[table.live], return_counts=True)
    several = np.isin(table.group, groups[numbers > 1])
    result: Flags = table.live & several
    return result
