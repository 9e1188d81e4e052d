"""Credit across the episodes of a trial: exploration is rewarded by what it makes possible."""

import numpy as np

from agentsgym.credit.baselines import comparable, episode_starts, leave_one_out, returns_to_go
from agentsgym.credit.table import StepTable, without_rounding
from agentsgym.types.records import Floats


def trial(table: StepTable, *, gamma: float = 1.0, trial_gamma: float = 1.0) -> Floats:
    """Return-to-go over the rest of the trial minus its leave-one-out mean, shape (N,).

    Q_t = G_t + Σ_{e' > e} trial_gamma^(e'−e) · w_{e'} · R_{e'}: the step's discounted
    return-to-go in its episode e (times the episode's share w of the final reward) plus the rewards
    of the later episodes. A_t = Q_t − mean_{j≠i} Q^j at the start of the same episode e. So a step
    in a free shot (w = 0) is rewarded only by the gains of later episodes.

    Bias: none for gamma = trial_gamma = 1 with respect to the final reward, because the baseline
    only uses other rollouts. Rewards of earlier episodes are not included, so its
    variance is mostly below that of "rloo" on the whole trial's return: 0.77 to 1.21 times it on
    enumerable trials of two scored episodes, median 0.88. (It is above if steps late in an episode
    dominate: the baseline contains rewards of the episode's start, which such a step's Q does not.)
    gamma = 0.9 has error 0.04, trial_gamma = 0.9 error 0.06; trial_gamma = 0 is credit per episode,
    gives a free shot nothing and has error 0.59 (medians, tests/credit/test_bias.py).
    Source: meta-RL's trial return (Duan et al. 2016, RL², arXiv 1611.02779) with a cross-episode
    discount as in LaMer, arXiv 2512.16848, and a leave-one-out baseline.
    """
    return less_start(table, trial_returns(table, gamma, trial_gamma))


def trial_returns(table: StepTable, gamma: float, trial_gamma: float) -> Floats:
    """Q_t of each step: what is still to be earned in the trial, shape (N,)."""
    return returns_to_go(table, gamma) + _later_episodes(table, trial_gamma)


def less_start(table: StepTable, to_go: Floats) -> Floats:
    """`to_go` minus its mean over the group's other rollouts at the start of the same episode,
    shape (N,)."""
    live = comparable(table)[table.rollout]
    groups = table.group[table.rollout]
    starts = episode_starts(table)
    keys = [(int(groups[i]), int(table.episode[i]), bool(live[i])) for i in starts]
    at_start = leave_one_out(to_go[starts], table.rollout[starts], keys, np.zeros(len(starts)))
    difference = to_go - np.repeat(at_start, np.diff([*starts, len(to_go)]))
    return np.where(live, without_rounding(difference, table.size[table.rollout]), 0.0)


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
