"""Paired comparisons, what they can show, and pass@k: by hand and by simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest

from agentsgym.evaluation import compare, pass_all, pass_any, passes, smallest_difference
from agentsgym.evaluation.comparison import difference
from of_rows import episode_of, rollout_of, step_of


def played(task, reward, *, index=0, group=None, env="Game", win=True):
    info = {"win": reward == 1.0} if win else {}
    game = episode_of(step_of(reward=reward, done=True, info=info))
    group = task if group is None else group
    return rollout_of([game], group=group, index=index, env=env, task={"solution": f"s{task}"})


def side(rewards, per_task=1, **more):
    return [
        played(k // per_task, float(r), index=k % per_task, **more) for k, r in enumerate(rewards)
    ]


def test_a_paired_difference_by_hand():
    # Differences 1, 0, 1, 1, 0, 1, 1, 1: mean 0.75, standard error 0.4629 / sqrt(8), t = 2.3646.
    comparison = compare(side([1, 1, 1, 1, 0, 1, 1, 1]), side([0, 1, 0, 0, 0, 0, 0, 0]))
    assert (comparison.pairs, comparison.clusters, comparison.left_out) == (8, 8, 0)
    assert comparison.win_rate == comparison.reward
    assert (comparison.reward.first, comparison.reward.second, comparison.reward.difference) == (
        0.875,
        0.125,
        0.75,
    )
    assert comparison.reward.interval == pytest.approx((0.75 - 0.38701, 0.75 + 0.38701), abs=1e-4)
    assert comparison.reward.shown


def test_rollouts_of_a_task_count_as_one_cluster():
    wins, losses = side([1, 1, 1, 1, 0, 0, 0, 0], 4), side([0, 0, 0, 0, 0, 0, 0, 0], 4)
    together = compare(wins, losses).reward
    apart = compare(side([1, 1, 1, 1, 0, 0, 0, 0]), side([0] * 8)).reward
    assert together.difference == apart.difference == 0.5
    assert apart.shown and not together.shown


def test_equal_sides_are_not_called_equal_to_the_last_digit():
    reward = compare(side([1, 0] * 5), side([1, 0] * 5)).reward
    unseen = 3.841459 / 13.841459  # Wilson's bound for none of ten
    assert reward.interval == pytest.approx((-unseen, unseen), abs=1e-6)
    two = compare(side([1, 1]), side([0, 0])).reward
    assert two.difference == 1.0 and not two.shown


def test_failed_rollouts_are_left_out_in_pairs():
    first, second = side([1, 1, 0, 1]), side([0, 1, 0, 0])
    second[0] = replace(second[0], error="broke")
    comparison = compare(first, second)
    assert (comparison.pairs, comparison.left_out) == (3, 1)
    assert comparison.reward.first == pytest.approx(2 / 3)


def test_other_tasks_cannot_be_compared():
    for other in (side([1, 1])[::-1], side([1]), side([1, 1], env="Other"), side([1, 1], 2)):
        with pytest.raises(ValueError, match="did not play the same tasks"):
            compare(side([1, 1]), other)


def test_each_environment_is_compared_apart():
    first = side([1, 1, 1]) + side([2, 2, 2], env="Other", win=False)
    second = side([0, 0, 1]) + side([2, 3, 4], env="Other", win=False)
    comparison = compare(first, second)
    assert list(comparison.environments) == ["Game", "Other"]
    assert comparison.environments["Game"].win_rate.difference == pytest.approx(2 / 3)
    assert comparison.environments["Other"].win_rate is None
    assert comparison.win_rate == comparison.environments["Game"].win_rate
    assert comparison.reward.difference == pytest.approx((2 - 3) / 6)


def test_one_task_shows_nothing():
    reward = compare(side([1, 1], 2), side([0, 0], 2)).reward
    assert all(math.isnan(bound) for bound in reward.interval) and not reward.shown


def test_the_smallest_difference_is_found_as_often_as_announced():
    # 40 tasks of different difficulty, 4 rollouts each.
    tasks = np.repeat(np.arange(40), 4).tolist()
    worse = smallest_difference(160, 40, power=0.8)
    rng = np.random.default_rng(0)
    findings = 0
    for _ in range(400):
        chance = np.repeat(rng.uniform(0.4, 0.8, 40), 4)
        sides = [(rng.random(160) < p).astype(float).tolist() for p in (chance, chance - worse)]
        findings += difference(*sides, tasks, width=1.0).shown
    assert 0.77 <= findings / 400 <= 0.95  # an even chance is the worst case


def test_more_pairs_show_a_smaller_difference_and_one_cluster_none():
    assert smallest_difference(1024, 64) == smallest_difference(256, 64) / 2
    assert smallest_difference(256, 64, power=0.9) > smallest_difference(256, 64)
    assert smallest_difference(8, 1) == math.inf


def test_pass_at_k_by_hand():
    # 2 of 4 won; of the 6 pairs one has no win, one has two.
    assert pass_any(2, 4, 2) == pytest.approx(5 / 6)
    assert pass_all(2, 4, 2) == pytest.approx(1 / 6)
    assert pass_any(2, 4, 1) == pass_all(2, 4, 1) == 0.5
    assert (pass_any(1, 4, 4), pass_all(3, 4, 4)) == (1.0, 0.0)


def test_passes_of_several_rollouts_of_a_task():
    rollouts = side([1, 1, 1, 1, 1, 0, 0, 0], 4)
    two, four = passes(rollouts)
    assert (two.k, four.k) == (2, 4)
    assert two.any == pytest.approx((1 + 0.5) / 2) and two.all == pytest.approx(0.5)
    assert (four.any, four.all) == (1.0, 0.5)
    rollouts[7] = replace(rollouts[7], error="broke")
    assert passes(rollouts)[1].any == 1.0  # the second task has too few left
    assert passes(side([1, 0])) == [] == passes(side([1, 0], 2, win=False))
