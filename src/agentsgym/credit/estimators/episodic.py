"""Estimators of whole rollouts, of single steps by their return, and of tokens by their reward."""

from dataclasses import replace

import numpy as np

from agentsgym.credit.baselines import (
    actions_before,
    comparable,
    leave_one_out,
    returns_to_go,
)
from agentsgym.credit.table import StepTable, without_rounding
from agentsgym.types import Rollout
from agentsgym.types.records import Floats
from agentsgym.types.reward_placement import per_token_rewards

# Keeps a group whose rewards are (almost) equal from a division by zero; TRL's value.
EPSILON = 1e-4


def grpo(table: StepTable, *, scale_rewards: str = "group") -> Floats:
    """Group-normalized final reward on every step of a rollout, shape (N,).

    A = (R − mean of the group) / (std + 1e-4), with the standard deviation (ddof 1) of the group
    for `scale_rewards="group"`, of all rollouts of the same environment for "batch", and without
    a divisor for "none".

    Bias: unscaled, its expected gradient is (G−1)/G times the policy gradient, because the mean
    includes the rollout itself; the direction is exact. Scaling by the group's standard deviation
    changes the direction: relative error 0.46, and 0.19 after the best rescaling (medians over
    the enumerable processes of tests/credit/test_bias.py, as all such numbers here).
    Source: Shao et al. 2024 (GRPO), arXiv 2402.03300; "none" is Liu et al. 2025 (Dr. GRPO),
    arXiv 2503.20783.
    """
    if scale_rewards not in ("group", "batch", "none"):
        raise ValueError(f"scale_rewards must be 'group', 'batch' or 'none', got {scale_rewards!r}")
    per_rollout = np.zeros(len(table.group))
    compared = comparable(table)
    for group in np.unique(table.group[compared]):
        members = np.flatnonzero((table.group == group) & compared)
        rewards = table.final_reward[members]
        per_rollout[members] = without_rounding(rewards - rewards.mean(), table.size[members])
        if scale_rewards == "group":
            per_rollout[members] /= rewards.std(ddof=1) + EPSILON
    if scale_rewards == "batch":
        for env in set(table.env[compared]):
            members = np.flatnonzero((table.env == env) & compared)
            per_rollout[members] /= table.final_reward[members].std(ddof=1) + EPSILON
    return per_rollout[table.rollout]


def rloo(table: StepTable) -> Floats:
    """Final reward minus the mean of the group's other rollouts, on every step, shape (N,).

    A = R − mean_{j≠i} R_j. Bias: none, under a constant normalizer of the loss. A loss divided by
    the rollout's own tokens (loss types "grpo", "sapo") turns the gradient by 0.32 (error after
    the best rescaling), one divided by all tokens of three rollouts ("dapo", "cispo", "vespo") by
    0.10, and less the more rollouts share the divisor; "dr_grpo" and "luspo" leave it as it is.
    Source: Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740.
    """
    return rloo_per_rollout(table)[table.rollout]


def rloo_per_rollout(table: StepTable) -> Floats:
    """The leave-one-out advantage of each rollout, shape (R,); 0 where it is not comparable."""
    per_rollout = np.zeros(len(table.group))
    members = np.flatnonzero(comparable(table))
    rewards = table.final_reward[members]
    groups = table.group[members].tolist()
    baseline = leave_one_out(rewards, members, groups, np.zeros(len(members)))
    per_rollout[members] = without_rounding(rewards - baseline, table.size[members])
    return per_rollout


def reinforce_pp(table: StepTable, *, baseline: str = "batch", gamma: float = 1.0) -> Floats:
    """Return-to-go against the agent tokens of the whole batch, shape (N,).

    A = (G_t − mean) / √(variance + 1e-8) over all agent tokens, with the discounted return G_t to
    the end of the rollout. With `baseline="group"` R minus the mean of its group stands for G_t.
    With "loo" A = G_t minus the mean over the agent tokens of the batch's other rollouts.

    Bias: none for "loo" with gamma = 1. Otherwise the mean includes the rollout itself and the
    divisor depends on it, the less the larger the batch. Groups differ in difficulty, which a mean
    over the batch leaves in as noise; without it and the divisor, "group" would be "rloo".
    Source: Hu et al. 2025 (REINFORCE++), arXiv 2501.03262. Its released code sums rewards from
    behind and starts anew at tokens that are not the agent's: with masked observations a step gets
    its own reward only, which is `gamma=0` here.
    """
    if baseline not in ("batch", "group", "loo"):
        raise ValueError(f"baseline must be 'batch', 'group' or 'loo', got {baseline!r}")
    live = comparable(table)[table.rollout]
    tokens = np.where(live, table.tokens, 0)
    if baseline == "group":
        values = grpo(table, scale_rewards="none")
    else:
        whole = replace(table, episode=np.zeros_like(table.episode))
        values = np.where(live, returns_to_go(whole, gamma), 0.0)
    total, number = float(tokens @ values), int(tokens.sum())
    size = table.size.max(initial=0.0)
    if baseline == "loo":
        own = np.bincount(table.rollout, tokens * values, minlength=1)[table.rollout]
        others = number - np.bincount(table.rollout, tokens, minlength=1)[table.rollout]
        values = without_rounding(values - (total - own) / np.maximum(others, 1), size)
        return np.where(live, values, 0.0)
    centered = without_rounding(values - total / max(number, 1), size)
    variance = float(tokens @ centered**2) / max(number - 1, 1)
    return np.where(live, centered / np.sqrt(variance + 1e-8), 0.0)


def step_return(table: StepTable, *, gamma: float = 1.0) -> Floats:
    """Return-to-go minus its leave-one-out mean at the same step index, shape (N,).

    A_t = G_t − mean_{j≠i} G_t^j over the group's other rollouts that reached step t of the same
    episode, and A_t = G_t if none did (the baseline is then 0). G_t is the discounted return-to-go
    in the episode, times the episode's share of the final reward. A step's index is the number of
    actions before it, and notes are compared with notes; a reflection after the episode has no
    return-to-go.

    Bias: none for gamma = 1, also if the policy decides when to stop, because the baseline does not
    depend on the rollout's own action. Means that include the rollout itself, z-scores, and
    dropping steps that no other rollout reached are biased. gamma < 1 without the factor gamma^t
    optimizes neither the return nor the discounted return (relative error 0.05 and 0.06 at 0.9 on
    three steps, medians over the enumerable processes of tests/credit/test_bias.py).
    Source: return-to-go with a leave-one-out baseline, as in Kool et al. 2019, per step index.
    """
    returns = returns_to_go(table, gamma)
    live = comparable(table)[table.rollout]
    keys = list(
        zip(
            table.group[table.rollout].tolist(),
            table.episode.tolist(),
            table.reflection.tolist(),
            actions_before(table).tolist(),
            live.tolist(),
            strict=True,
        )
    )
    baseline = leave_one_out(returns, table.rollout, keys, np.zeros(len(returns)))
    difference = without_rounding(returns - baseline, table.size[table.rollout])
    return np.where(live, difference, 0.0)


def placed_rewards(rollout: Rollout) -> list[Floats]:
    """The placed per-token rewards of each row themselves, shape (T,), 0 off agent tokens.

    Myopic (a step is rewarded only for its immediate reward) and without a baseline, so its
    gradient is not that of the episode's reward. Raises ValueError for a reward that is not finite.
    """
    rows = [
        np.where(row.agent_token_mask == 1, rewards, 0.0)
        for row, rewards in zip(rollout.rows, per_token_rewards(rollout), strict=True)
    ]
    for rewards in rows:
        if not np.isfinite(rewards).all():
            raise ValueError(
                f"per-token rewards of session {rollout.session_id} hold "
                f"{rewards[~np.isfinite(rewards)][0]}; rewards must be finite"
            )
    return rows
