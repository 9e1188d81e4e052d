"""Numbers of the published estimators in experiments/estimators, worked out by hand."""

import math

import pytest

from credit.played import Did, rollout
from credit.test_estimators import near, steps_of

BY_STATE = "experiments.estimators.by_state"


def remembered():
    """Rollout 0 goes A B B, rollout 1 goes C B, rollout 2 goes A B."""
    return [
        rollout(0, 0, [Did(0.0, anchor="A"), Did(1.0, anchor="B"), Did(2.0, anchor="B")]),
        rollout(0, 1, [Did(0.0, anchor="C"), Did(2.0, anchor="B")]),
        rollout(0, 2, [Did(1.0, anchor="A"), Did(0.0, anchor="B")]),
    ]


def test_hgpo_weighs_longer_agreement_more():
    # Returns: (3, 3, 2), (2, 2), (1, 0). E: 1.5, 0, −1.5. k = 1, weight 2: at A 3 against 1; at B
    # rollout 0 counts with 2.5: 3 and 2 against 1, 2 against 1.25, 0 against 2.25; at C nobody: E.
    # k = 2, weight 3: after A, B 3 against 0. k = 3 has nobody else.
    assert steps_of(f"{BY_STATE}.hgpo", remembered()) == near(
        [[2, (2 * 2 + 3 * 3) / 5, 1], [0, 0.75], [-2, (-2 * 2.25 - 3 * 3) / 5]]
    )
    assert steps_of(f"{BY_STATE}.hgpo", remembered(), history=0)[0] == pytest.approx([2, 2, 1])
    assert steps_of(f"{BY_STATE}.hgpo", remembered(), alpha=0.0)[0][1] == pytest.approx((2 + 3) / 2)


def test_hgpo_as_published():
    # Population deviations: at A (3, 1) 1; at B (3, 2, 2, 0), mean 1.75, √(4.75 / 4); after A, B
    # (3, 0) 1.5. C is alone: 0.
    a, b, ab = 1 / (1 + 1e-6), 1 / (math.sqrt(4.75 / 4) + 1e-6), 1.5 / (1.5 + 1e-6)
    assert steps_of(f"{BY_STATE}.hgpo", remembered(), baseline="mean_std") == near(
        [
            [a, (2 * 1.25 * b + 3 * ab) / 5, 0.25 * b],
            [0, 0.25 * b],
            [-a, (-2 * 1.75 * b - 3 * ab) / 5],
        ]
    )
    # An advantage of exactly 0 has no weight: at B (2, 2, 2), after A, B (2, 2), all equal.
    even = [
        rollout(0, i, [Did(r, anchor=s), Did(2.0, anchor="B")])
        for i, r, s in [(0, 0.0, "A"), (1, 1.0, "A"), (2, 0.0, "C")]
    ]
    assert steps_of(f"{BY_STATE}.hgpo", even, baseline="mean") == near(
        [[-0.5, 0], [0.5, 0], [0, 0]]
    )


def mazes():
    """Rollout 0 goes A B A C and wins, rollout 1 goes A B, rollout 2 goes A C D; D leads to B."""
    return [
        rollout(0, 0, [*(Did(0.0, anchor=s) for s in "ABA"), Did(1.0, anchor="C")]),
        rollout(0, 1, [Did(0.0, anchor="A"), Did(0.5, anchor="B")]),
        rollout(0, 2, [*(Did(0.0, anchor=s) for s in "AC"), Did(0.0, anchor="D")]),
    ]


def test_g2po_values_the_next_state_by_what_others_earned_from_it():
    # Returns: 1 everywhere, 0.5, 0. E: 0.75, 0, −0.75. Others' values, for rollout 0: A 0.25,
    # B 0.5, C 0; for 1: A 0.5, B 1; for 2: A 0.75, C 1, D nobody.
    assert steps_of(f"{BY_STATE}.g2po", mazes()) == near(
        [
            [(0.75 + 0.25) / 2, (0.75 - 0.25) / 2, (0.75 - 0.25) / 2, (0.75 + 1) / 2],
            [(0 + 0.5) / 2, (0 - 0.5) / 2],
            [(-0.75 + 0.25) / 2, (-0.75 - 1) / 2, -0.75],
        ]
    )


def test_g2po_as_published():
    # At γ = 0.5, V: A (1/16, 1/4, 1/8, 0) → 7/64; B (1/8, 1/4) → 3/16; C (1/2, 0) → 1/4; D 0.
    a, b, c, d = 7 / 64, 3 / 16, 1 / 4, 0.0
    reached = [[b, a, c, 1], [b, 0], [c, d, 0]]
    own = [[a, b, a, c], [a, b], [a, c, d]]
    at = {"A": (2 * b + 2 * c) / 4, "B": a / 2, "C": 1 / 2}
    c1 = [
        [b - at["A"], a - at["B"], c - at["A"], 1 - at["C"]],
        [b - at["A"], -at["B"]],
        [c - at["A"], d - at["C"], 0],
    ]
    gain = [[x - y for x, y in zip(*both, strict=True)] for both in zip(reached, own, strict=True)]
    mean = sum(map(sum, gain)) / 9
    e = [1 - 5 / 9, 0.5 - 5 / 9, 0 - 5 / 9]
    expected = [
        [e[i] + x + y - mean for x, y in zip(c1[i], gain[i], strict=True)] for i in range(3)
    ]
    assert steps_of(f"{BY_STATE}.g2po", mazes(), baseline="mean", gamma=0.5) == near(expected)
    # Where a success is worth more, no episode ends in one.
    less = steps_of(f"{BY_STATE}.g2po", mazes(), baseline="mean", gamma=0.5, success=10.0)
    assert less[0][3] == pytest.approx(expected[0][3] - 1 - 1 / 2 + 1 / 9)


def test_graphgpo_counts_the_steps_to_a_success():
    # C wins: d is 0 at the goal, 1 at C, 2 at A, 3 at B. D and what ended without: 4.
    # Returns 0.5^d(next): at A 1/8, 1/2, 1/8, 1/2; at B 1/4, 1/16; at C 1, 1/16; at D alone.
    # Deviations (ddof 1): of E over rows √(4 (4/9)² + 2 (1/18)² + 3 (5/9)²) / √8, at A √(4/3) times
    # 3/16, of a pair half its difference times √2.
    of_e = math.sqrt((4 * 8**2 + 2 * 1 + 3 * 10**2) / 18**2 / 8) + 1e-6
    e = [8 / 18 / of_e, -1 / 18 / of_e, -10 / 18 / of_e]
    at_a, at_b, at_c = (
        x / (x * root + 1e-6)
        for x, root in [(3 / 16, math.sqrt(4 / 3)), (3 / 32, math.sqrt(2)), (15 / 32, math.sqrt(2))]
    )
    assert steps_of(f"{BY_STATE}.graphgpo", mazes(), gamma=0.5) == near(
        [
            [e[0] - at_a, e[0] + at_b, e[0] + at_a, e[0] + at_c],
            [e[1] - at_a, e[1] - at_b],
            [e[2] + at_a, e[2] - at_c, e[2]],
        ]
    )
    lost = steps_of(f"{BY_STATE}.graphgpo", mazes(), gamma=0.5, success=2.0)
    assert lost == near([[e[0]] * 4, [e[1]] * 2, [e[2]] * 3])


def repeated_actions():
    """In one state action 3 earns 1 and 0 in rollouts 0 and 1, action 4 earns 2 in rollout 2."""
    return [
        rollout(0, i, [Did(reward, anchor="A", word=word)])
        for i, (reward, word) in enumerate([(1.0, 3), (0.0, 3), (2.0, 4)])
    ]


def test_action_mean_shares_what_an_action_earned_and_shrinks_the_rare_one():
    # E: 0, −1.5, 1.5. Ḡ of 3 is 0.5 (n = 2), of 4 it is 2 (n = 1); others earned 1, 1.5, 0.5.
    assert steps_of(f"{BY_STATE}.action_mean", repeated_actions(), shrinkage=0.0) == near(
        [[(0 - 0.5) / 2], [(-1.5 - 1) / 2], [(1.5 + 1.5) / 2]]
    )
    assert steps_of(f"{BY_STATE}.action_mean", repeated_actions()) == near(
        [[(0 - 0.5 / 2) / 2], [(-1.5 - 1 / 2) / 2], [(1.5 + 1.5 / 3) / 2]]
    )
    # With means that include the step: E 0, −1, 1; Ḡ − 1 is −0.5, −0.5, 1.
    assert steps_of(f"{BY_STATE}.action_mean", repeated_actions(), baseline="mean") == near(
        [[-0.25], [-1.25], [1 + 1 / 3]]
    )


def test_action_mean_has_two_baselines():
    with pytest.raises(ValueError, match="'loo' or 'mean', got 'mean_std'"):
        steps_of(f"{BY_STATE}.action_mean", repeated_actions(), baseline="mean_std")
