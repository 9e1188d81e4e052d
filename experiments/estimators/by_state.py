"""Published estimators that compare steps taken in the same state, beside `gigpo` of the package.

No preset uses them and the board (docs/results/credit-board.md) recommends none. Each is used by
its dotted path: `train.advantage_estimator=experiments.estimators.by_state.hgpo` in a checkout.
`baseline` is as in `agentsgym.credit.estimators.gigpo`. Biases are medians over the enumerable
processes of tests/credit/test_bias.py.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from agentsgym.credit import Estimator, StepTable, Variant
from agentsgym.credit.baselines import (
    Keys,
    comparable,
    episode_lengths,
    episode_starts,
    leave_one_out,
    mean_of_others,
    next_step,
    normalized,
    returns_to_go,
    rloo_per_rollout,
    state_keys,
)
from agentsgym.credit.estimators.gigpo import compared, group_keys, with_episode
from agentsgym.credit.table import without_rounding
from agentsgym.types import names
from agentsgym.types.rows import Flags, Floats, Ints


def _hgpo(
    table: StepTable,
    *,
    baseline: str = "loo",
    gamma: float = 1.0,
    history: int = 2,
    alpha: float = 1.0,
) -> Floats:
    """Step advantages within groups of equal histories of several lengths, shape (N,).

    For each k from 1 to `history` + 1, S_k compares steps whose last k states of the episode, the
    present one included, are equal. A = Σ w_k S_k with w_k in proportion to (k+1)^alpha over the k
    for which another step is there. With "loo" S_k = G_t − the mean G of the *other* rollouts, and
    A is the leave-one-out episode advantage where nobody else was in the state. As released
    (`mean_std`, population deviation) A = 0 there, and an S_k of exactly 0 takes no part either.

    Bias: none for "loo" with gamma = 1 and one episode: which k there are does not depend on the
    step's own action.
    Source: HGPO, arXiv 2602.22817, as its code computes it (its `base_group` is off there, so
    there is no episode part).
    """
    returns = returns_to_go(table, gamma)
    total, weights = np.zeros(len(returns)), np.zeros(len(returns))
    for k in range(1, history + 2):
        part = compared(table, returns, _history_keys(table, k), baseline, ddof=0)
        there = ~np.isnan(part) if baseline == "loo" else np.nan_to_num(part) != 0.0
        weight = np.where(there, (k + 1.0) ** alpha, 0.0)
        total += weight * np.nan_to_num(part)
        weights += weight
    alone = rloo_per_rollout(table)[table.rollout] if baseline == "loo" else 0.0
    mean = np.where(weights > 0, total / np.maximum(weights, 1e-9), alone)
    return np.where(comparable(table)[table.rollout], mean, 0.0)


def _history_keys(table: StepTable, states: int) -> Keys:
    """Keys that are equal for steps whose last `states` states of the episode, the present one
    included, are equal; steps with too few before them have keys of their own."""
    keys = state_keys(table)
    before = np.arange(len(keys)) - np.repeat(episode_starts(table), episode_lengths(table))
    return [
        tuple(keys[i - states + 1 : i + 1]) if before[i] >= states - 1 else i
        for i in range(len(keys))
    ]


def _g2po(
    table: StepTable,
    *,
    baseline: str = "loo",
    gamma: float = 1.0,
    step_weight: float = 1.0,
    success: float = 1.0,
) -> Floats:
    """Step advantage by the value of the state that the step led to, as the group knows it, (N,).

    As released ("mean", "mean_std") A = E + ω·(C1 + C2): V(s) is the mean of γ^(steps to the end)·R
    over the group's visits to s, that of a finished episode is R, or 0 if its reward is below
    `success`; C1 is V(next) within the steps of the same state, C2 is V(next) − V(s) within all
    steps of the group. With "loo" A = (E + ω·S) / (1 + ω), S = r + γ·V(next) − V(s), with the mean
    returns of the *other* rollouts as values; where no other one was in the next state, the step's
    own return stands for V(next), and where none was in this one S = E.

    Bias: none for "loo" with gamma = 1 and one episode if what follows a state depends on it alone
    and no state is visited twice in an episode; otherwise V(next) averages over other pasts.
    Source: G2PO, arXiv 2606.22995, as its code computes it with γ = 0.95; its abstract describes C2
    alone. Its code takes 0.1 off V(next) after an invalid action, which here costs the reward its
    `malformed_penalty`, and `success` is 10 there, the reward of a win.
    """
    keys, following = state_keys(table), next_step(table)
    size = table.size[table.rollout]
    last = following < 0
    if baseline == "loo":
        returns = returns_to_go(table, gamma)
        values = leave_one_out(returns, table.rollout, keys, returns)
        to_come = table.counted + gamma * np.where(last, 0.0, values[following])
        step = without_rounding(to_come - mean_of_others(returns, table.rollout, keys)[0], size)
        return with_episode(table, step, baseline, step_weight)
    earned = _episode_sums(table, table.counted)
    discounted = earned * gamma ** _steps_to_end(table)
    values = discounted - np.nan_to_num(normalized(discounted, keys, size))
    ends = np.where(_won(table, success), earned, 0.0)
    reached = np.where(last, ends, values[following])
    gains = compared(table, reached - values, group_keys(table), baseline)
    step = np.nan_to_num(compared(table, reached, keys, baseline)) + np.nan_to_num(gains)
    return with_episode(table, step, baseline, step_weight)


def _graphgpo(
    table: StepTable,
    *,
    gamma: float = 0.1,
    step_weight: float = 1.0,
    success: float = 1.0,
) -> Floats:
    """Step advantage by the distance to a success in the graph of the group's states, shape (N,).

    The graph has an edge from each step's state to the next one; the end of an episode whose reward
    is at least `success` is the goal, d the shortest number of edges to it, and what does not lead
    there is one further away than the furthest state that does. A = E + ω·S as in "gigpo" with
    "mean_std", with the step's return `success`·gamma^d(next). Without a success in the group
    S = 0.

    Bias: there is no unbiased form, because the shortest path is the return of the best actions
    known, not of the policy's.
    Source: GraphGPO, arXiv 2605.26684, as its code computes it (`success` is 10 there); the
    abstract credits the reduction of the distance, which within a state is the same.
    """
    won = _won(table, success)
    keys, following = state_keys(table), next_step(table)
    distances = _distances(keys, group_keys(table), following, won)
    step = compared(table, success * gamma**distances, keys, "mean_std")
    return with_episode(table, step, "mean_std", step_weight)


def _action_mean(
    table: StepTable,
    *,
    baseline: str = "loo",
    gamma: float = 1.0,
    step_weight: float = 1.0,
    shrinkage: float = 2.0,
) -> Floats:
    """Step advantage by what the same action earned in the same state, if rare shrunk, (N,).

    In its state the step's action was taken n times, with the mean return Ḡ; μ is the mean return
    of the state. S = (n·Ḡ + κ·μ) / (n + κ) − μ, with κ = `shrinkage`: what is known from few visits
    counts little. As released ("mean", "mean_std") A = E + ω·S. With "loo"
    A = (E + ω·S) / (1 + ω), where n and Ḡ are of the step itself and the *other* rollouts, μ of
    these others, and S = E in a state where no other one was. Actions are compared token by token.

    Bias: none for κ = 0 with "loo", gamma = 1 and one episode, if no state is visited twice in it,
    and the policy or what follows depends on the state alone; where the policy does, equal actions
    have equal scores, and sharing their returns changes no sum of them. κ > 0 turns the gradient: n
    depends on the action, and likely ones get more.
    Source: the shrinkage of ECPO, arXiv 2606.05885, known to us from a summary: its weight of the
    step part (ρ) and its normalization are not there.
    """
    if baseline not in ("loo", "mean"):
        raise ValueError(f"baseline must be 'loo' or 'mean', got {baseline!r}")
    returns, keys = returns_to_go(table, gamma), state_keys(table)
    size = table.size[table.rollout]
    taken = list(zip(keys, table.action.tolist(), strict=True))
    if baseline == "loo":
        others, times = mean_of_others(returns, table.rollout, taken)
        mean = (returns + times * np.nan_to_num(others)) / (times + 1)
        step = without_rounding(mean - mean_of_others(returns, table.rollout, keys)[0], size)
        number = times + 1
    else:
        numbers = Counter(taken)
        number = np.array([numbers[key] for key in taken])
        step = normalized(returns, keys, size)
        step = without_rounding(step - np.nan_to_num(normalized(returns, taken, size)), size)
    shrunk = step * number / (number + shrinkage)
    return with_episode(table, shrunk, baseline, step_weight)


# -- the parts -------------------------------------------------------------------------------------


def _episode_sums(table: StepTable, values: Floats) -> Floats:
    """The sum over each step's episode, shape (N,)."""
    starts = episode_starts(table)
    return np.repeat(
        np.add.reduceat(values, starts) if len(starts) else values, episode_lengths(table)
    )


def _won(table: StepTable, success: float) -> Flags:
    """Whether each step's episode earned as much, or misses it by rounding alone, shape (N,)."""
    beyond = _episode_sums(table, table.reward) - success
    return without_rounding(beyond, table.size[table.rollout]) >= 0


def _steps_to_end(table: StepTable) -> Ints:
    """Number of the episode's steps from each one on, itself included, shape (N,)."""
    ends = np.cumsum(episode_lengths(table))
    return np.repeat(ends, episode_lengths(table)) - np.arange(len(table.reward))


def _distances(keys: Keys, groups: Keys, following: Ints, won: Flags) -> Floats:
    """Fewest edges from the state after each step to a success of its group, shape (N,); one more
    than the longest of these where there is none."""
    before: dict[Hashable, set[Hashable]] = {}
    for i, after in enumerate(following.tolist()):
        if after >= 0 or won[i]:
            before.setdefault(keys[after] if after >= 0 else groups[i], set()).add(keys[i])
    result = np.zeros(len(following))
    distances: dict[Hashable, dict[Hashable, int]] = {}
    for i, after in enumerate(following.tolist()):
        group = groups[i]
        if group not in distances:
            distances[group] = _breadth_first(group, before)
        known = distances[group]
        state = keys[after] if after >= 0 else group if won[i] else None
        result[i] = known.get(state, max(known.values()) + 1)
    return result


def _breadth_first(
    goal: Hashable, before: Mapping[Hashable, Iterable[Hashable]]
) -> dict[Hashable, int]:
    """State → fewest edges to the goal."""
    distances = {goal: 0}
    queue = deque([goal])
    while queue:
        state = queue.popleft()
        for earlier in before.get(state, ()):
            if earlier not in distances:
                distances[earlier] = distances[state] + 1
                queue.append(earlier)
    return distances


# -- the entries -----------------------------------------------------------------------------------

hgpo = Estimator(
    name="experiments.estimators.by_state.hgpo",
    help="steps with the same last states against each other, longer agreement counting more",
    assign=_hgpo,
    variants=(
        Variant(options={}, error=0.0, turned=0.0),
        Variant(options={"baseline": "mean_std"}, error=0.45, turned=0.27),
    ),
)
g2po = Estimator(
    name="experiments.estimators.by_state.g2po",
    help="the value of the state that a step led to, as the group knows it, against its own",
    assign=_g2po,
    variants=(
        Variant(options={}, error=0.001, turned=0.001),
        Variant(options={"baseline": "mean", "gamma": 0.95}, error=0.73, turned=0.31),
    ),
)
graphgpo = Estimator(
    name="experiments.estimators.by_state.graphgpo",
    help="the distance from the state that a step led to, to a success of the group",
    assign=_graphgpo,
    variants=(Variant(options={}, error=0.33, turned=0.26),),
)
action_mean = Estimator(
    name="experiments.estimators.by_state.action_mean",
    help="what the same action earned in the same state, shrunk where it is rare",
    assign=_action_mean,
    variants=(
        Variant(options={}, error=0.29, turned=0.07),
        Variant(options={"shrinkage": 0.0}, error=0.001, turned=0.001),
        Variant(options={"baseline": "mean"}, error=0.18, turned=0.12),
    ),
)

PUBLISHED = names.table(hgpo, g2po, graphgpo, action_mean)
"""The entries by their dotted paths."""
