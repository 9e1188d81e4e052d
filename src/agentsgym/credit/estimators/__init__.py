"""The advantage estimators: one entry for each, and one file per family of functions."""

from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.estimators.episodic import grpo, placed_rewards, rloo, step_return
from agentsgym.credit.estimators.gigpo import gigpo
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
                options={"baseline": "published"},
                formula="E + ω S with means that include the rollout itself",
                error=0.30,
                turned=0.10,
            ),
            Variant(
                options={"baseline": "published", "scale_rewards": "group"},
                formula="the same, E and S divided by their standard deviations",
                error=0.31,
                turned=0.23,
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
