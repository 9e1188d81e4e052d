"""Numbers of every estimator, worked out by hand on rollouts of two groups."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments.estimators.by_state import PUBLISHED

from agentsgym import RolloutBatch
from agentsgym.credit import (
    ESTIMATORS,
    Estimator,
    StepAdvantages,
    advantages,
    check_estimator,
    concatenate,
    credit_steps,
    table_of,
    to_tokens,
)
from agentsgym.credit.estimators.trial_cv import action_luck, luck_of, trial_cv
from agentsgym.credit.table import objects
from credit.played import Did, rollout
from of_rows import episode_of, redrawn, retold

OF_STEPS = [name for name, estimator in ESTIMATORS.items() if estimator.per == "step"]

# Group 0 earns 1, 0, 2 in two, one and three steps; group 1 earns 4 and 0; one rollout failed.
PLAYED = [
    rollout(0, 0, [0.0, 1.0]),
    rollout(0, 1, [0.0]),
    rollout(0, 2, [0.5, 0.5, 1.0]),
    rollout(1, 0, [4.0]),
    rollout(1, 1, [9.0], failed=True),
    rollout(1, 2, [1.0, -1.0]),
]


def steps_of(name, rollouts, **options):
    """The estimator's numbers, one list per rollout."""
    played = table_of(rollouts)
    values = credit_steps(played, name, **options).value
    return [values[played.rollout == r].tolist() for r in range(len(rollouts))]


def near(expected):
    return [pytest.approx(values) for values in expected]


def test_grpo_unscaled_is_the_distance_to_the_groups_mean():
    assert steps_of("grpo", PLAYED, scale_rewards="none") == near(
        [[0, 0], [-1], [1, 1, 1], [2], [0], [-2, -2]]
    )


def test_grpo_divides_by_the_groups_deviation():
    # Deviations (ddof 1): 1 in group 0 and √8 in group 1.
    two = 2 / (math.sqrt(8) + 1e-4)
    one = 1 / (1 + 1e-4)
    assert steps_of("grpo", PLAYED) == near([[0, 0], [-one], [one] * 3, [two], [0], [-two, -two]])


def test_grpo_by_batch_divides_each_environment_by_its_own_deviation():
    played = [
        rollout(0, 0, [0.0], env="A"),
        rollout(0, 1, [2.0], env="A"),
        rollout(1, 0, [0.0], env="B"),
        rollout(1, 1, [200.0], env="B"),
    ]
    a, b = 1 / (math.sqrt(2) + 1e-4), 100 / (math.sqrt(20000) + 1e-4)
    assert steps_of("grpo", played, scale_rewards="batch") == near([[-a], [a], [-b], [b]])


def test_rloo_leaves_the_rollout_itself_out():
    assert steps_of("rloo", PLAYED) == near([[0, 0], [-1.5], [1.5] * 3, [4], [0], [-4, -4]])


def test_step_return_compares_with_who_got_there():
    # Group 0, returns-to-go: (1, 1), (0), (2, 1.5, 1). Step 0: others' means 1, 1.5, 0.5.
    # Step 1: 1 against 1.5 and 1.5 against 1. Step 2: nobody else, so 1 against 0.
    # Group 1: 4 against 0 and 0 against 4; at step 1 nobody else, so −1 against 0.
    assert steps_of("step_return", PLAYED) == near(
        [[0, -0.5], [-1.5], [1.5, 0.5, 1], [4], [0], [-4, -1]]
    )


def test_step_return_discounts():
    played = [rollout(0, 0, [0.0, 0.0, 8.0]), rollout(0, 1, [1.0])]
    assert steps_of("step_return", played, gamma=0.5) == near([[1, 4, 8], [-1]])


def anchored():
    """Rollout 0 goes A B A, rollout 1 goes A B, rollout 2 goes A C."""
    return [
        rollout(0, 0, [Did(0.0, anchor="A"), Did(0.0, anchor="B"), Did(3.0, anchor="A")]),
        rollout(0, 1, [Did(1.0, anchor="A"), Did(0.0, anchor="B")]),
        rollout(0, 2, [Did(0.0, anchor="A"), Did(2.0, anchor="C")]),
    ]


def test_gigpo_compares_steps_in_the_same_state():
    # Returns-to-go: (3, 3, 3), (1, 0), (2, 2). E: 3−1.5, 1−2.5, 2−2.
    # S at A: rollout 0 counts once, with mean 3: 3−1.5 (twice), 1−2.5, 2−2.
    # S at B: 3−0 and 0−3. S at C: nobody else, so E. A = (E + S) / 2.
    assert steps_of("gigpo", anchored()) == near(
        [[1.5, (1.5 + 3) / 2, 1.5], [-1.5, (-1.5 - 3) / 2], [0, 0]]
    )


def test_gigpo_weighs_its_two_parts():
    assert steps_of("gigpo", anchored(), step_weight=0.0) == near([[1.5] * 3, [-1.5] * 2, [0, 0]])
    assert steps_of("gigpo", anchored(), step_weight=3.0)[0][1] == pytest.approx((1.5 + 9) / 4)


def test_gigpo_as_published():
    # Means over rows: E of 3 · 3, 2 · 1, 2 · 2 is 15/7; at A (3, 3, 1, 2) 2.25; at B (3, 0) 1.5.
    # At C alone 0.
    e = [3 - 15 / 7, 1 - 15 / 7, 2 - 15 / 7]
    assert steps_of("gigpo", anchored(), baseline="mean") == near(
        [[e[0] + 0.75, e[0] + 1.5, e[0] + 0.75], [e[1] - 1.25, e[1] - 1.5], [e[2] - 0.25, e[2]]]
    )
    # Deviations (ddof 1): of E √((3·36 + 2·64 + 2·1) / 49 / 6), at A √(2.75 / 3), at B √4.5.
    of_e, at_a, at_b = math.sqrt(238 / 294), math.sqrt(2.75 / 3), math.sqrt(4.5)
    e, a, b = [x / (of_e + 1e-6) for x in e], 1 / (at_a + 1e-6), 1 / (at_b + 1e-6)
    assert steps_of("gigpo", anchored(), baseline="mean_std") == near(
        [
            [e[0] + 0.75 * a, e[0] + 1.5 * b, e[0] + 0.75 * a],
            [e[1] - 1.25 * a, e[1] - 1.5 * b],
            [e[2] - 0.25 * a, e[2]],
        ]
    )


def test_reinforce_pp_compares_with_all_tokens_of_the_batch():
    played = [
        rollout(0, 0, [Did(0.0, 1), Did(3.0, 1)]),
        rollout(0, 1, [Did(1.0, 2)]),
        rollout(1, 0, [4.0], failed=True),
        rollout(2, 0, [Did(5.0, 1)]),
        rollout(2, 1, [Did(1.0, 1)]),
    ]
    # Tokens: 3, 3, 1, 1, 5, 1: mean 14/6, squares about it (2·4 + 3·16 + 64) / 9.
    whole = math.sqrt((2 * 4 + 3 * 16 + 64) / 9 / 5 + 1e-8)
    m = 7 / 3
    assert steps_of("reinforce_pp", played) == near(
        [[(3 - m) / whole] * 2, [(1 - m) / whole], [0], [(5 - m) / whole], [(1 - m) / whole]]
    )
    # Own rewards: 0, 3, 1, 1, 5, 1 with mean 11/6.
    own = math.sqrt((0 + 9 + 1 + 1 + 25 + 1 - 121 / 6) / 5 + 1e-8)
    assert steps_of("reinforce_pp", played, gamma=0.0)[0] == pytest.approx(
        [-11 / 6 / own, (3 - 11 / 6) / own]
    )
    # R less the group's mean: 1, 1, −1, −1, 2, −2.
    group = math.sqrt(12 / 5 + 1e-8)
    assert steps_of("reinforce_pp", played, baseline="group") == near(
        [[1 / group] * 2, [-1 / group], [0], [2 / group], [-2 / group]]
    )
    # The others' tokens: 8/4, 12/4, 9/5, 13/5.
    assert steps_of("reinforce_pp", played, baseline="loo") == near(
        [[1, 1], [-2], [0], [5 - 9 / 5], [1 - 13 / 5]]
    )


def test_gigpo_takes_the_observation_where_the_environment_gives_no_anchor():
    """`rollout` writes "seen 0", "seen 1", … into its observations."""
    expected = [[0, (0 - 0.5) / 2], [-1.5], [1.5, (1.5 + 0.5) / 2, 1.5]]
    assert steps_of("gigpo", PLAYED)[:3] == near(expected)


def test_observations_agree_up_to_case_and_white_space():
    played = [rollout(0, 0, [1.0]), rollout(0, 1, [0.0])]
    step = retold(played[1].episodes[0].steps[0], observation="  SEEN\n0 ")
    other = redrawn(played[1], episodes=[episode_of(step)])
    assert table_of([played[0], other]).anchor.tolist() == ["seen 0", "seen 0"]


def test_gae_sums_what_the_values_did_not_expect():
    played = table_of([rollout(0, 0, [1.0, 2.0], [4.0]), rollout(0, 1, [0.0])])
    # An episode of rollout 0 is half of its final reward: 0.5, 1, 2 and 0. Without values the sums.
    assert steps_of("gae", [rollout(0, 0, [1.0, 2.0], [4.0]), rollout(0, 1, [0.0])]) == near(
        [[3.5, 3, 2], [0]]
    )
    valued = replace(played, value=np.array([3.0, 2.0, 1.0, 4.0]))
    assert credit_steps(valued, "gae").value.tolist() == [0.5, 1, 1, -4]
    # δ at gamma 0.5: 0.5 + 1 − 3, 1 + 0.5 − 2, 2 − 1. A: 1, −0.5 + 1/8, −1.5 − 3/64 at lam 0.25.
    assert credit_steps(valued, "gae", gamma=0.5, lam=0.25).value.tolist() == [
        -1.5 - 3 / 64, -3 / 8, 1, -4,
    ]  # fmt: skip


# Two episodes, the first one free: what is earned there counts nothing.
TRIALS = [
    rollout(0, 0, [7.0, 0.0], [1.0, 2.0], free_shots=1),
    rollout(0, 1, [0.0], [1.0], free_shots=1),
]


def test_trial_pays_a_free_shot_by_what_later_episodes_gain():
    # Q in episode 0: 3 and 1. Q in episode 1: 3, 2 and 1; its baselines are those of its start, as
    # nobody else has a second step.
    assert steps_of("trial", TRIALS) == near([[2, 2, 2, 1], [-2, -2]])


def test_trial_knows_what_others_had_earned_before_a_step():
    played = [rollout(0, 0, [1.0, 1.0, 1.0]), rollout(0, 1, [2.0]), rollout(0, 2, [1.0, 0.0])]
    # Q: (3, 2, 1), (2) and (1, 0); baselines at the starts 1.5, 2 and 2.5. At the second step the
    # only other one had earned 1; nobody else has a third step, so that is left as it was.
    assert steps_of("trial", played) == near([[1.5, 1.5, 0.5], [0], [-1.5, -1.5]])
    assert steps_of("trial", played[1:]) == near([[1], [-1, -2]])


def test_trial_discounts_across_episodes():
    assert steps_of("trial", TRIALS, trial_gamma=0.5) == near([[1, 1, 2, 1], [-1, -2]])
    assert steps_of("trial", TRIALS, trial_gamma=0.0) == near([[0, 0, 2, 1], [0, -2]])


def test_trial_counts_a_scored_episode_by_its_share_of_the_final_reward():
    played = [rollout(0, 0, [1.0, 1.0], [1.0]), rollout(0, 1, [0.0], [5.0])]
    # Q: (3, 2) / 2, (1) / 2 and (5) / 2, (5) / 2. Baselines at the starts: 5, 5 and 3, 1, halved.
    assert steps_of("trial", played) == near([[-1, -1.5, -2], [1, 2]])


FINER = [
    ("trial", {}),
    ("trial", {"trial_gamma": 0.0}),
    ("step_return", {}),
    ("gigpo", {}),
    ("gigpo", {"baseline": "mean"}),
    *((name, {}) for name in PUBLISHED if "graph" not in name),
]


@pytest.mark.parametrize(("name", "options"), FINER)
def test_no_estimator_grows_with_the_number_of_scored_episodes(name, options):
    """The last of three scored episodes has a third of the credit that it has alone."""
    one = [rollout(0, 0, [1.0, 2.0]), rollout(0, 1, [4.0, 0.5])]
    still = [[0.0, 0.0], [0.0, 0.0]]
    three = [rollout(0, 0, *still, [1.0, 2.0]), rollout(0, 1, *still, [4.0, 0.5])]
    # Anchors of their own, so that steps of the last episode are compared with each other only.
    alone, last = (steps_of(name, _anchored(played), **options) for played in (one, three))
    assert [values[-2:] for values in last] == near([[v / 3 for v in values] for values in alone])


def _anchored(played):
    """The same rollouts, with an anchor for each episode and step."""
    return [
        replace(
            one,
            episodes=tuple(
                replace(e, steps=tuple(replace(s, anchor=f"{e.index} {s.index}") for s in e.steps))
                for e in one.episodes
            ),
        )
        for one in played
    ]


# Rollout 0 says something malformed twice in its free shot, for 0.5 each. Two episodes are scored.
FINED = [
    rollout(0, 0, [Did(-0.5, penalty=0.5), Did(6.5, penalty=0.5)], [1.0], [1.0], free_shots=1),
    rollout(0, 1, [7.0, 7.0], [1.0], [1.0], free_shots=1),
]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("rloo", {}, [[-0.5] * 4, [0.5] * 4]),
        ("grpo", {"scale_rewards": "none"}, [[-0.25] * 4, [0.25] * 4]),
        ("step_return", {}, [[-0.5, -0.25, 0, 0], [0.5, 0.25, 0, 0]]),
        ("trial", {}, [[-0.5, -0.25, 0, 0], [0.5, 0.25, 0, 0]]),
    ],
)
def test_a_malformed_action_in_a_free_shot_costs_what_it_costs_elsewhere(name, options, expected):
    """A penalty of 0.5 in one of two scored episodes takes 0.25 off the final reward."""
    assert steps_of(name, FINED, **options) == near(expected)
    scored = [
        rollout(0, 0, [0.0], [Did(-0.5, penalty=0.5), Did(0.5, penalty=0.5)], [0.0], free_shots=1),
        rollout(0, 1, [0.0], [1.0, 0.0], [0.0], free_shots=1),
    ]
    assert table_of(scored).penalty.tolist() == [0.0] * 8
    assert FINED[0].final_reward == FINED[1].final_reward == 1.0


def test_what_counts_of_the_steps_sums_to_the_final_reward():
    table = table_of([*FINED, *[replace(one, group=1) for one in TRIALS]])
    sums = np.bincount(table.rollout, table.counted)
    np.testing.assert_allclose(sums, table.final_reward)
    np.testing.assert_allclose(table.final_reward, [0.5, 1.0, 3.0, 1.0])


def repeated():
    """Three trials of two scored one-step episodes: "ab" earns 1 and "ac" 0, each with half of the
    probability wherever the policy's is known."""
    a, b, c = 1, 2, 3
    words = [(a, b), (a, c), (a, b), (a, b), (a, c), (a, b)]
    played = table_of(
        [rollout(0, 0, [1.0], [0.0]), rollout(0, 1, [1.0], [1.0]), rollout(0, 2, [0.0], [1.0])]
    )
    even = ({a: 1.0}, {b: 0.5, c: 0.5})
    return replace(played, action=objects(words), choices=objects([(), even] * 3))


def test_trial_cv_takes_the_luck_of_later_actions_from_the_group():
    # Rollouts 0 and 2 know "ab" alone (the others said "ac" once), which is worth as much as an
    # unknown action. Rollout 1 knows both: its "ab" earned 1, 0.5 was to be expected.
    played = repeated()
    assert action_luck(played).tolist() == [0, 0, 0, 0.5, 0, 0]
    # An episode is half of the final reward. First steps: returns 1, 2 − 0.5, 1 against 1.25, 1,
    # 1.25. Second steps as they are.
    assert (2 * trial_cv(played)).tolist() == [-0.25, -1, 0.5, 0.5, -0.25, 0.5]
    # A discount holds for the luck as for the reward: 1, 1 + 0.5 · (1 − 0.5), 0.5.
    discounted = 2 * trial_cv(played, trial_gamma=0.5)[::2]
    assert discounted.tolist() == [1 - 0.875, 1.25 - 0.75, 0.5 - 1.125]


def test_trial_cv_counts_no_failed_rollout():
    played = repeated()
    failed = replace(played, live=np.array([True, True, False]))
    assert action_luck(failed).tolist() == [0] * 6


def test_trial_cv_sums_out_only_tokens_that_decide_for_one_action():
    # After "a", "b" leaves two known actions open.
    worth = {(1, 2, 3): 1.0, (1, 2, 4): 0.0, (1, 5): 0.0, (6,): 3.0}
    chances = ({1: 0.5, 6: 0.5}, {2: 0.5, 5: 0.5}, {3: 0.25, 4: 0.75})
    assert luck_of(worth, (1, 2, 3), chances) == 1.0 - 0.25
    assert luck_of({(1, 2): 1.0, (6,): 2.0}, (6,), chances) == 2.0 - (0.5 + 2 * 0.5)
    assert luck_of({(1, 2): 1.0, (6,): 2.0}, (7,), chances) == 0.0 - (0.5 + 2 * 0.5)


def test_trial_cv_without_choices_is_trial():
    assert (ESTIMATORS["trial_cv"](table_of(PLAYED)) == ESTIMATORS["trial"](table_of(PLAYED))).all()


def test_a_reflection_earns_only_what_later_episodes_earn():
    note = Did(0.0, kind="reflection")
    played = [rollout(0, 0, [6.0, note], [4.0]), rollout(0, 1, [0.0, note], [0.0])]
    # Q: (5, 2), (2) and (0, 0), (0); baselines at the starts: 0 and 5, 0 and 2. Before its
    # reflection, rollout 0 had earned 3.
    assert steps_of("trial", played) == near([[5, 2, 2], [-5, -2, -2]])
    # Elsewhere a reflection has no return-to-go, and is compared with reflections.
    assert steps_of("step_return", played) == near([[3, 0, 2], [-3, 0, -2]])


def test_a_note_in_an_episode_is_no_step_of_the_game():
    note = Did(0.0, kind="reflection")
    played = [rollout(0, 0, [1.0, note, 4.0]), rollout(0, 1, [1.0, 2.0])]
    # The second actions are compared, although the note stands between; nobody else has a note.
    assert steps_of("step_return", played) == near([[2, 4, 2], [-2, -2]])
    assert steps_of("trial", played) == near([[2, 1, 2], [-2, -2]])


def test_reflections_at_different_step_numbers_are_still_compared():
    note = Did(0.0, kind="reflection")
    played = [rollout(0, 0, [1.0, 0.0, note], [0.0]), rollout(0, 1, [1.0, note], [0.0])]
    assert steps_of("step_return", played)[0][2] == 0.0


def test_a_free_shot_earns_nothing_by_per_episode_credit():
    assert steps_of("step_return", TRIALS) == near([[0, 0, 2, 2], [0, -2]])


def test_whole_rollout_credit_looks_at_scored_episodes():
    assert steps_of("rloo", TRIALS) == near([[2] * 4, [-2] * 2])


@pytest.mark.parametrize("name", OF_STEPS)
def test_a_rollout_that_has_nobody_to_be_compared_with_gets_nothing(name):
    alone = [rollout(0, 0, [1.0, 2.0]), rollout(1, 0, [5.0]), rollout(1, 1, [3.0], failed=True)]
    assert steps_of(name, alone) == [[0, 0], [0], [0]]


@pytest.mark.parametrize("name", OF_STEPS)
def test_episodes_without_steps(name):
    """A token budget can end an episode before its first action. It counts with reward 0."""
    played = [rollout(0, 0, [2.0], []), rollout(0, 1, [], []), rollout(0, 2, [], [4.0])]
    values = steps_of(name, played, **({"scale_rewards": "none"} if name == "grpo" else {}))
    assert [len(v) for v in values] == [1, 0, 1]
    assert all(math.isfinite(v) for rollout_values in values for v in rollout_values)
    # Mean rewards are 1, 0, 2; without a second rollout at that place the baseline is 0.
    expected = {"grpo": [0, 1], "rloo": [0, 1.5], "step_return": [1, 2], "trial": [1, 2]}
    if name in expected:
        assert [values[0][0], values[2][0]] == pytest.approx(expected[name])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_played(name):
    assert advantages(RolloutBatch([]), name) == []
    unplayed = RolloutBatch([rollout(0, 0, []), rollout(0, 1, [])])
    assert advantages(unplayed, name) == []


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_rollout_without_agent_tokens_counts_for_others(name):
    silent = rollout(0, 1, [Did(3.0, tokens=0)])
    rows = advantages(RolloutBatch([rollout(0, 0, [1.0]), silent]), name)
    assert rows[1].tolist() == [0.0] * 2
    if name == "rloo":
        assert rows[0].tolist() == [0, 0, -2, -2]


# -- the entry --------------------------------------------------------------------------------


def test_a_steps_number_stands_in_full_on_each_of_its_tokens():
    batch = RolloutBatch([rollout(0, 0, [Did(1.0, 3), Did(0.0, 1)]), rollout(0, 1, [0.5])])
    first, second = advantages(batch, "step_return")
    assert first.tolist() == [0, 0, 0.5, 0.5, 0.5, 0, 0]
    assert second.tolist() == [0, 0, -0.5, -0.5]
    assert first.dtype == np.float64


def test_one_array_per_row():
    played = [
        rollout(0, 0, [7.0, 0.0], [1.0, 2.0], free_shots=1, row_per_episode=True),
        rollout(0, 1, [0.0], [1.0], free_shots=1),
    ]
    batch = RolloutBatch(played)
    rows = advantages(batch, "trial")
    assert len(rows) == len(batch.rows) == 3
    assert [r.tolist() for r in rows] == [
        [0, 0, 2, 2, 0, 2, 2],
        [0, 0, 2, 2, 0, 1, 1],
        [0, 0, -2, -2, 0, -2, -2],
    ]


def test_reward_is_the_placed_rewards():
    batch = RolloutBatch([rollout(0, 0, [1.0, 3.0]), rollout(0, 1, [2.0], failed=True)])
    assert [a.tolist() for a in advantages(batch, "reward")] == [
        [0, 0, 0.5, 0.5, 0, 1.5, 1.5],
        [0] * 4,
    ]


def reward_per_step(table, *, factor=1.0):
    """A custom estimator."""
    return table.reward * factor


def test_the_estimator_of_the_docs_is_one():
    page = Path(__file__).parents[2] / "docs/credit.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    made = {}
    exec(code, made)
    entry = Estimator(name="docs.immediate", help="", assign=made["immediate"], variants=())
    assert entry.options == ("discount",)
    steps = credit_steps(table_of([rollout(0, 0, [1.0, 4.0])]), entry, discount=0.5)
    assert steps.value.tolist() == [1.0, 2.0]


def wrong_shape(table):
    return table.final_reward


PATH = f"{__name__}.reward_per_step"


def test_a_custom_estimator_is_a_function_named_by_its_path():
    batch = RolloutBatch([rollout(0, 0, [1.0]), rollout(0, 1, [0.0, 2.0])])
    rows = advantages(batch, PATH, factor=2.0)
    assert rows[1].tolist() == [0, 0, 0, 0, 0, 4, 4]
    with pytest.raises(ValueError, match="it takes factor"):
        advantages(batch, PATH, gamma=1.0)
    with pytest.raises(ValueError, match="must give 3 finite numbers, one per step"):
        advantages(batch, f"{__name__}.wrong_shape")
    with pytest.raises(ValueError, match="cannot load"):
        advantages(batch, f"{__name__}.nothing")


@pytest.mark.parametrize(
    ("estimator", "options", "words"),
    [
        ("ppo", {}, f"known: {', '.join(sorted(ESTIMATORS))}"),
        ("grpo", {"gamma": 1.0}, "takes no option 'gamma'; it takes scale_rewards"),
        ("reward", {"gamma": 1.0}, "it takes none"),
        ("grpo", {"scale_rewards": "std"}, "'group', 'batch' or 'none', got 'std'"),
        ("gigpo", {"baseline": "max"}, "'loo', 'mean' or 'mean_std', got 'max'"),
        ("reinforce_pp", {"baseline": "mean"}, "'batch', 'group' or 'loo', got 'mean'"),
    ],
)
def test_what_does_not_exist_is_named(estimator, options, words):
    batch = RolloutBatch([rollout(0, 0, [1.0]), rollout(0, 1, [0.0])])
    with pytest.raises(ValueError, match=words):
        advantages(batch, estimator, **options)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rewards_that_are_not_finite_are_refused(name, bad):
    batch = RolloutBatch([rollout(0, 0, [1.0, bad]), rollout(0, 1, [0.0])])
    with pytest.raises(ValueError, match="rewards must be finite"):
        advantages(batch, name)
    # In a failed rollout they mean nothing.
    batch = RolloutBatch(
        [rollout(0, 0, [bad], failed=True), rollout(0, 1, [1.0]), rollout(0, 2, [0.0])]
    )
    assert all(np.isfinite(row).all() for row in advantages(batch, name))


# -- tables -----------------------------------------------------------------------------------


def test_a_group_that_straddles_two_tables_is_one_group():
    parts = concatenate([table_of(PLAYED[:2]), table_of([]), table_of(PLAYED[2:])])
    whole = table_of(PLAYED)
    assert parts.rollout.tolist() == whole.rollout.tolist()
    for name in OF_STEPS:
        assert credit_steps(parts, name).by_rollout() == credit_steps(whole, name).by_rollout()


@pytest.mark.parametrize(
    ("estimator", "options", "words"),
    [
        ("step_return", {"gamma": math.nan}, "'gamma' of 'step_return' must be finite, got nan"),
        ("step_return", {"gamma": "0.9"}, "'gamma' of 'step_return' must be a number, got '0.9'"),
        ("step_return", {"gamma": True}, "must be a number"),
        ("trial", {"trial_gamma": 1.5}, r"'trial_gamma' of 'trial' must be in \[0, 1\], got 1.5"),
        ("gigpo", {"step_weight": math.inf}, "'step_weight' of 'gigpo' must be finite"),
    ],
)
def test_options_take_no_other_numbers(estimator, options, words):
    with pytest.raises(ValueError, match=words):
        check_estimator(estimator, options)


# -- keys ---------------------------------------------------------------------------------------


def test_credit_carries_the_keys_of_its_steps():
    steps = credit_steps(table_of(PLAYED), "step_return")
    assert steps.by_rollout()[0, 0] == {(0, 0): 0.0, (0, 1): -0.5}
    assert steps.by_rollout()[1, 2] == {(0, 0): -4.0, (0, 1): -1.0}
    assert set(steps.by_rollout()) == {(r.group, r.index) for r in PLAYED}


@pytest.mark.parametrize("name", OF_STEPS)
def test_rows_find_their_steps_in_any_order(name):
    """Neither the order of the steps nor that of the rollouts nor that of the rows matters."""
    played = [
        rollout(g, i, [float(g + i), 1.0 / (1 + i)], [2.0 * i]) for g in (0, 1) for i in (0, 1)
    ]
    rows = [row for one in played for row in one.rows]
    expected = to_tokens(rows, credit_steps(table_of(played), name))
    steps = credit_steps(table_of([played[k] for k in (2, 0, 3, 1)]), name)
    mixed = np.random.default_rng(0).permutation(len(steps.value))
    steps = StepAdvantages(*(getattr(steps, column)[mixed] for column in StepAdvantages.__slots__))
    per_token = to_tokens(rows[::-1], steps)[::-1]
    assert [a.tolist() for a in per_token] == [a.tolist() for a in expected]
    assert any(a.any() for a in per_token)


def test_a_rollout_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="rollout 1 of group 0 stands 2 times"):
        table_of([rollout(0, 0, [1.0]), rollout(0, 1, [1.0]), rollout(0, 1, [2.0])])


# -- the table of estimators --------------------------------------------------------------------


def by_position(table, gamma=1.0):
    return table.reward


def test_options_must_be_keyword_only():
    with pytest.raises(TypeError, match="options of the estimator 'grpo' must be keyword-only"):
        replace(ESTIMATORS["grpo"], assign=by_position)
    with pytest.raises(ValueError, match="options as keyword-only arguments"):
        check_estimator(f"{__name__}.by_position", {"gamma": 0.5})


PER_TOKEN = replace(
    ESTIMATORS["reward"],
    name="half",
    assign=lambda rollout, *, share=0.5: [np.ones(len(row.spans)) * share for row in rollout.rows],
)


def test_an_estimator_of_tokens_may_be_ones_own():
    """A dotted path may name a whole entry."""
    batch = RolloutBatch([rollout(0, 0, [1.0])])
    path = f"{__name__}.PER_TOKEN"
    assert advantages(batch, path, share=0.2)[0].tolist() == [0.2]
    with pytest.raises(ValueError, match="gives numbers to tokens, not to steps"):
        credit_steps(table_of(batch.rollouts), path)
