"""Credit across the episodes of a trial: exploration is rewarded by what it makes possible."""

from agentsgym.credit.baselines import less_expected, trial_returns
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import StepTable
from agentsgym.types.rows import Floats


def trial(table: StepTable, *, gamma: float = 1.0, trial_gamma: float = 1.0) -> Floats:
    """Return-to-go over the rest of the trial minus its leave-one-out mean, shape (N,).

    Q_t = G_t + Σ_{e' > e} trial_gamma^(e'−e) · w_{e'} · R_{e'}: the step's discounted
    return-to-go in its episode e (times the episode's share w of the final reward) plus the rewards
    of the later episodes. A_t = Q_t − (mean_{j≠i} Q^j at the start of the same episode e − E_t).
    E_t is what the other rollouts that reached step t had earned in the episode before it, on
    average (with gamma < 1, how much their Q had fallen); if none did, E_{t−1}. Steps are counted
    as in "step_return". So a step in a free shot (w = 0) is rewarded only by the gains of later
    episodes, and equal rollouts get 0. Where rewards come at the end of episodes alone, E_t is 0
    for gamma = 1.

    Bias: none for gamma = trial_gamma = 1 with respect to the final reward, because the baseline
    only uses other rollouts. Rewards from before the step are not included, so its variance is
    mostly below that of "rloo" on the whole trial's return: 0.77 to 1.17 times it on enumerable
    trials of two scored episodes in groups of 3, median 0.91. (It is above if steps dominate that
    few rollouts reach.)
    gamma = 0.9 has error 0.04, trial_gamma = 0.9 error 0.06; trial_gamma = 0 is credit per episode,
    gives a free shot nothing and has error 0.59 (medians, tests/credit/test_bias.py).
    Source: meta-RL's trial return (Duan et al. 2016, RL², arXiv 1611.02779) with a cross-episode
    discount as in LaMer, arXiv 2512.16848, and a leave-one-out baseline.
    """
    to_go = trial_returns(table, gamma, trial_gamma)
    return less_expected(table, to_go, to_go)


ESTIMATOR = Estimator(
    name="trial",
    help="the rewards still to come in the whole trial, so later episodes reward exploring",
    assign=trial,
    variants=(Variant(options={}, error=0.0, turned=0.0),),
)
