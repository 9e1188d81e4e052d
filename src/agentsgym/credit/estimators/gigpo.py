"""GiGPO: groups within the group, of steps taken in the same state."""

import numpy as np

from agentsgym.credit.baselines import comparable, leave_one_out, returns_to_go
from agentsgym.credit.estimators.episodic import EPSILON, grpo, rloo_per_rollout
from agentsgym.credit.table import StepTable
from agentsgym.types.records import Floats


def gigpo(
    table: StepTable,
    *,
    baseline: str = "loo",
    gamma: float = 1.0,
    step_weight: float = 1.0,
    scale_rewards: str = "none",
) -> Floats:
    """Episode advantage plus step advantage within groups of equal anchor states, shape (N,).

    A step's anchor is the environment's key for the state before the step; without one, the
    normalized observation. With `baseline="loo"` (default) A = (E + ω·S) / (1 + ω): E is the
    leave-one-out episode advantage, S = G_t minus the mean G of the *other* rollouts in the same
    state, and S = E if no other rollout was in it. With "published" A = E + ω·S with means that
    include the step itself, and S = 0 for a state seen once, as in the paper;
    `scale_rewards="group"` then divides both by their standard deviations.

    Bias: none for "loo" with gamma = 1 and one episode. In a trial G_t ends with the episode, so
    a free shot only gets E's share of A (half, for ω = 1, if all states are matched): use "trial"
    for trials. gamma = 0.9 has error 0.02. "published" turns the gradient by 0.10 (error after the
    best rescaling; 0.30 before), scaled by 0.23 (medians over the enumerable processes of
    tests/credit/test_bias.py).
    Source: Feng et al. 2025 (GiGPO), arXiv 2505.10978.
    """
    if baseline not in ("loo", "published"):
        raise ValueError(f"baseline must be 'loo' or 'published', got {baseline!r}")
    if scale_rewards not in ("group", "none"):
        raise ValueError(f"scale_rewards must be 'group' or 'none', got {scale_rewards!r}")
    if baseline == "published":
        step = _published_steps(table, gamma, scale=scale_rewards == "group")
        return grpo(table, scale_rewards=scale_rewards) + step_weight * step
    if scale_rewards != "none":
        raise ValueError("scale_rewards='group' goes with baseline='published' only")
    episode = rloo_per_rollout(table)[table.rollout]
    step = _loo_steps(table, gamma, episode)
    return (episode + step_weight * step) / (1.0 + step_weight)


def _keys(table: StepTable) -> list[tuple[int, bool, str, bool]]:
    live = comparable(table)[table.rollout]
    return list(
        zip(
            table.group[table.rollout].tolist(),
            (table.score_weight > 0).tolist(),
            table.anchor.tolist(),
            live.tolist(),
            strict=True,
        )
    )


def _loo_steps(table: StepTable, gamma: float, episode: Floats) -> Floats:
    returns = returns_to_go(table, gamma)
    live = comparable(table)[table.rollout]
    # If no other rollout was in this state, this baseline makes the step advantage equal E.
    baseline = leave_one_out(returns, table.rollout, _keys(table), returns - episode)
    return np.where(live, returns - baseline, 0.0)


def _published_steps(table: StepTable, gamma: float, *, scale: bool) -> Floats:
    returns = returns_to_go(table, gamma)
    result = np.zeros(len(returns))
    members: dict[object, list[int]] = {}
    live = comparable(table)[table.rollout]
    for i, key in enumerate(_keys(table)):
        if live[i]:
            members.setdefault(key, []).append(i)
    for indices in members.values():
        values = returns[indices]
        result[indices] = values - values.mean()
        if scale and len(indices) > 1:
            result[indices] /= values.std(ddof=1) + EPSILON
    return result
