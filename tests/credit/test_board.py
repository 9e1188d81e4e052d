"""The board: numbers computed by hand, and the same figures as other ways of measuring."""

from functools import partial

import numpy as np
import pytest
from experiments.estimators.board import (
    CHALLENGES,
    Challenge,
    board,
)
from experiments.estimators.processes import compare, every_group, gradients

from agentsgym.credit.estimators.grpo import grpo
from agentsgym.credit.estimators.rloo import rloo
from credit.enumerable import GROUP, expectation, stopping_process
from credit.test_bias import of_steps


def test_a_process_by_hand():
    """The first action is right with 0.3 and earns 1; in a mixed group of two the gradient is 0.5
    there, and 0.25 up or down in each state after it."""
    process = CHALLENGES["late reward"].process
    truth = process.true_gradient()
    assert truth == pytest.approx(np.array([[0.21, -0.21], [0, 0], [0, 0]]))
    groups = every_group(process, 2)
    assert groups.chance.sum() == pytest.approx(1.0)
    each = gradients(process, groups, rloo(groups.table)[groups.tokens.step] / 2)
    mean = np.tensordot(groups.chance, each, 1)
    assert mean == pytest.approx(truth)
    variance = groups.chance @ ((each - mean) ** 2).sum(axis=(1, 2))
    assert variance == pytest.approx(0.42 * 0.5 - 2 * 0.21**2 + 0.42 * 0.25)


def test_a_free_shot_is_worth_what_the_look_adds_to_the_scored_episode():
    """It is taken with 0.3 and raises the chance of the right door from 0.5 to 0.7."""
    truth = CHALLENGES["free shots"].process.true_gradient()
    assert truth[0] == pytest.approx([0.3 * 0.7 * 0.2, -0.3 * 0.7 * 0.2])
    assert truth[1] == pytest.approx([0.5 * 0.3 * 0.21, -0.5 * 0.3 * 0.21])
    assert truth[3] == pytest.approx([0.0, 0.0])  # either door, equally often


def test_unscaled_grpo_is_short_by_one_of_the_group_and_not_noisier(size=4):
    challenge = {"trials": CHALLENGES["trials"]}
    assigns = {"grpo": partial(grpo, scale_rewards="none"), "rloo": rloo}
    (_, ours), (_, plain) = board(assigns, challenge, (size,))
    assert (ours.error, ours.turned) == pytest.approx((1 / size, 0.0))
    assert (ours.noise, plain.noise) == pytest.approx((1.0, 1.0))
    assert plain.error < 1e-9


def test_the_figures_are_those_of_test_bias():
    process = stopping_process(1)
    assigns = {name: of_steps(name) for name in ("grpo {'scale_rewards': 'group'}", "step_return")}
    for label, measured in board(assigns, {"": Challenge("", process)}, (GROUP,)):
        bias = compare(expectation(process, assigns[label]), process.true_gradient())
        assert (measured.error, measured.turned) == pytest.approx((bias.error, bias.turned))
        assert not any(measured.halves)


def test_the_order_of_rollouts_must_not_matter():
    def first(table):
        return table.final_reward[table.rollout] * (table.index[table.rollout] == 0)

    with pytest.raises(ValueError, match="order of a group's rollouts"):
        list(board({"": first}))
