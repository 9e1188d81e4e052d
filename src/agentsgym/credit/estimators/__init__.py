"""The advantage estimators: one entry for each, and one file per family of functions."""

from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.estimators.by_state import action_mean, g2po, gigpo, graphgpo, hgpo
from agentsgym.credit.estimators.episodic import (
    grpo,
    placed_rewards,
    reinforce_pp,
    rloo,
    step_return,
)
from agentsgym.credit.estimators.gae import gae
from agentsgym.credit.estimators.trial import trial
from agentsgym.credit.estimators.trial_cv import trial_cv
from agentsgym.types.names import table

ESTIMATORS = table(
    Estimator(
        name="grpo",
        help="the rollout's final reward against the mean of its group, scaled",
        use="to repeat what others published with GRPO: scaling by the group's standard deviation "
        "turns the gradient, but makes learning rates carry over",
        source="Shao et al. 2024 (GRPO), arXiv 2402.03300; `none` is Liu et al. 2025 (Dr. GRPO), "
        "arXiv 2503.20783",
        assign=grpo,
        takes_scale_rewards=True,
        variants=(
            Variant(
                options={"scale_rewards": "none"},
                formula="R_i − mean_j R_j (itself included)",
                error=0.33,
                turned=0.0,
                note="(G−1)/G times the true gradient, whose direction is exact",
            ),
            Variant(
                options={"scale_rewards": "group"},
                formula="the same / (std of the group + 1e-4)",
                error=0.46,
                turned=0.19,
            ),
            Variant(
                options={"scale_rewards": "batch"},
                formula="the same / (std of the environment's rollouts in the batch + 1e-4)",
                error=None,
                turned=None,
            ),
        ),
    ),
    Estimator(
        name="rloo",
        help="the final reward against the mean of the group's other rollouts",
        use="one episode and one reward at its end: nothing finer is known",
        source="Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740",
        assign=rloo,
        variants=(Variant(options={}, formula="R_i − mean_{j≠i} R_j", error=0.0, turned=0.0),),
    ),
    Estimator(
        name="reinforce_pp",
        help="the return against all steps of the batch, scaled",
        use="to repeat what others published with REINFORCE++",
        source="Hu et al. 2025 (REINFORCE++), arXiv 2501.03262; `group` is its baseline form",
        assign=reinforce_pp,
        variants=(
            Variant(
                options={},
                formula="(G_t − mean) / std over all agent tokens of the batch, G_t to the end of "
                "the rollout",
                error=0.38,
                turned=0.25,
                note="in a batch of one group; less the larger the batch",
            ),
            Variant(
                options={"baseline": "group"},
                formula="the same of R_i − mean_j R_j (itself included)",
                error=0.37,
                turned=0.26,
                note="in a batch of one group",
            ),
            Variant(
                options={"gamma": 0.0},
                formula="as the first, with the step's own reward for G_t",
                error=0.48,
                turned=0.34,
                note="what the released code computes where observations are masked: its running "
                "sum starts anew at them",
            ),
            Variant(
                options={"baseline": "loo"},
                formula="G_t − mean over the agent tokens of the batch's other rollouts",
                error=0.0,
                turned=0.0,
                note="for γ = 1",
            ),
        ),
    ),
    Estimator(
        name="step_return",
        help="a step's return-to-go against that of other rollouts at the same step",
        use="one episode with rewards on the way, or an agent that decides when to stop: a step is "
        "not paid for what was earned before it",
        source="return-to-go with a leave-one-out baseline (Kool et al. 2019) per step index",
        assign=step_return,
        variants=(
            Variant(
                options={},
                formula="G_t − mean_{j≠i} G_t^j over those that reached step t of the episode; G_t "
                "where none did",
                error=0.0,
                turned=0.0,
                note="for γ = 1 and one episode, also where the policy decides when to stop; 0.05 "
                "at γ = 0.9",
            ),
        ),
    ),
    Estimator(
        name="gigpo",
        help="steps that were taken in the same state against each other",
        use='one episode in which rollouts of a group often meet the same state; `info["anchor"]` '
        "of the environment says which states are equal",
        source="Feng et al. 2025 (GiGPO), arXiv 2505.10978",
        assign=gigpo,
        variants=(
            Variant(
                options={},
                formula="(E + ω S) / (1 + ω): E as `rloo`; S = G_t − mean_{j≠i} G in the same "
                "state, E where nobody else was there; ω is `step_weight`",
                error=0.0,
                turned=0.0,
                note="for γ = 1 and one episode; 0.02 at γ = 0.9",
            ),
            Variant(
                options={"baseline": "mean"},
                formula="E + ω S with means over the steps, itself included; S = 0 in a state seen "
                "once",
                error=0.31,
                turned=0.13,
                note="the released code's default",
            ),
            Variant(
                options={"baseline": "mean_std"},
                formula="the same, E and S divided by their standard deviations + 1e-6",
                error=0.38,
                turned=0.29,
            ),
        ),
    ),
    Estimator(
        name="hgpo",
        help="steps with the same last states against each other, longer agreement counting more",
        use="one episode in which the same observation can follow different pasts",
        source="HGPO, arXiv 2602.22817; `mean_std` is its code's default",
        assign=hgpo,
        variants=(
            Variant(
                options={},
                formula="Σ_k w_k S_k / Σ_k w_k, k = 1 … `history` + 1, over the k for which "
                "another rollout had the same last k states: S_k = G_t − mean_{j≠i} G of these, "
                "w_k = (k+1)^alpha; `rloo` where there is none",
                error=0.0,
                turned=0.0,
                note="for γ = 1 and one episode",
            ),
            Variant(
                options={"baseline": "mean_std"},
                formula="the same with means that include the step, divided by population "
                "deviations + 1e-6; k with S_k = 0 left out, 0 where none is left",
                error=0.45,
                turned=0.27,
                note="as released",
            ),
        ),
    ),
    Estimator(
        name="g2po",
        help="the value of the state that a step led to, as the group knows it, against its own",
        use="one episode in which rollouts meet again in states that say all about what follows",
        source="G2PO, arXiv 2606.22995; `mean` with γ = 0.95 is its code, with two step parts; the "
        "abstract describes the second one alone",
        assign=g2po,
        variants=(
            Variant(
                options={},
                formula="(E + ω S) / (1 + ω), S = r_t + γ V(s_{t+1}) − V(s_t), V the mean return "
                "of the other rollouts in the state; G_{t+1} for V(s_{t+1}) where there is none, E "
                "for S where none was in s_t",
                error=0.001,
                turned=0.001,
                note="none for γ = 1 and one episode if no state is visited twice in it, and what "
                "follows depends on the state alone",
            ),
            Variant(
                options={"baseline": "mean", "gamma": 0.95},
                formula="E + ω (C1 + C2), V(s) = mean of γ^(steps to the end) R over all visits, R "
                "or 0 (below `success`) at the end; C1: V(s_{t+1}) less its mean in s_t; C2: "
                "V(s_{t+1}) − V(s_t) less its mean in the group",
                error=0.73,
                turned=0.31,
                note="as released",
            ),
        ),
    ),
    Estimator(
        name="graphgpo",
        help="the distance from the state that a step led to, to a success of the group",
        use="to compare with it: navigation, where an episode is won or not and states repeat",
        source="GraphGPO, arXiv 2605.26684, as its code computes it by default",
        assign=graphgpo,
        variants=(
            Variant(
                options={},
                formula="E + ω S with means over the steps, divided by deviations; S of "
                "`success` γ^d(s_{t+1}) in the same state, d the shortest way in the graph of the "
                "group's steps to an episode that earned `success`",
                error=0.33,
                turned=0.26,
                note="no unbiased form: a shortest way is not what the policy will do",
            ),
        ),
    ),
    Estimator(
        name="action_mean",
        help="what the same action earned in the same state, shrunk where it is rare",
        use="short actions that repeat in states that repeat",
        source="the shrinkage of ECPO, arXiv 2606.05885, known from a summary: its weight of the "
        "step part and its normalization are not there",
        assign=action_mean,
        variants=(
            Variant(
                options={},
                formula="(E + ω S) / (1 + ω), S = n/(n + κ) (Ḡ − mean_{j≠i} G in the same state), "
                "Ḡ the mean return of the n rollouts with the same action there, κ = `shrinkage` "
                "= 2; E for S where nobody else was there",
                error=0.29,
                turned=0.07,
                note="shrinkage pays likely actions more",
            ),
            Variant(
                options={"shrinkage": 0.0},
                formula="the same without shrinkage",
                error=0.001,
                turned=0.001,
                note="none for γ = 1 and one episode if no state is visited twice in it, and the "
                "policy or what follows depends on the state alone",
            ),
            Variant(
                options={"baseline": "mean"},
                formula="E + ω S with means over the steps, itself included",
                error=0.18,
                turned=0.12,
            ),
        ),
    ),
    Estimator(
        name="trial",
        help="what is still to be earned in the whole trial: later episodes pay for exploring",
        use="trials, in which later episodes can use what earlier ones found: pays a step for what "
        "later episodes gain, free shots included; rewards of earlier episodes are no noise",
        source="the trial's return of RL² (Duan et al. 2016, arXiv 1611.02779) with the discount "
        "of LaMer, arXiv 2512.16848, and a leave-one-out baseline",
        assign=trial,
        variants=(
            Variant(
                options={},
                formula="Q_t − mean_{j≠i} Q^j at the start of the same episode, "
                "Q_t = G_t + Σ_{e' > e} trial_gamma^(e'−e) w_{e'} R_{e'}",
                error=0.0,
                turned=0.0,
                note="for both discounts = 1; 0.04 at γ = 0.9, 0.06 at trial_gamma = 0.9, 0.59 at "
                "trial_gamma = 0",
            ),
        ),
    ),
    Estimator(
        name="trial_cv",
        help='as "trial", without the luck of later actions that others in the group took too',
        use="trials with short actions that repeat in a group and several scored episodes",
        source="a trajectory-wise control variate (Cheng, Yan and Boots 2019, arXiv 1908.03263) "
        "with action values from the group",
        assign=trial_cv,
        reads_choices=True,
        variants=(
            Variant(
                options={},
                formula="Q̃_t − mean_{j≠i} Q̃^j at the start of the same episode, "
                "Q̃_t = Q_t of `trial` − Σ_{k > t} w_k (r̂(a_k) − Σ_a π(a) r̂(a)), r̂ the mean "
                "reward of an action in the other rollouts",
                error=0.0,
                turned=0.0,
                note="for both discounts = 1",
            ),
        ),
    ),
    Estimator(
        name="gae",
        help="what is still to be earned in the rollout, against a critic's value of the step",
        use="long rollouts in which few steps are alike, so that the group says little about them",
        source="Schulman et al. 2016, arXiv 1506.02438, by steps as in AReaL's code and Turn-PPO, "
        "arXiv 2512.17008",
        assign=gae,
        reads_values=True,
        variants=(
            Variant(
                options={},
                formula="Σ_{k ≥ t} (γ λ)^(k−t) δ_k to the end of the rollout, "
                "δ_k = w_k r_k + γ V_{k+1} − V_k, V the critic's values, λ = `lam` = 1",
                error=0.0,
                turned=0.0,
                note="for γ = λ = 1, whatever the values",
            ),
            Variant(
                options={"gamma": 0.99, "lam": 0.9},
                formula="the same, as in Turn-PPO",
                error=0.01,
                turned=0.01,
                note="with the exact values of the states",
            ),
        ),
    ),
    Estimator(
        name="reward",
        help="each token's own placed reward, without a baseline",
        use="to compare with it: it is myopic, a step is paid only for what it earns at once",
        source="the reward of the token itself; the gradient of no objective",
        assign=placed_rewards,
        per="token",
        variants=(
            Variant(
                options={},
                formula="the placed reward of the token itself",
                error=0.40,
                turned=0.36,
            ),
        ),
    ),
)
"""The estimators by name."""
