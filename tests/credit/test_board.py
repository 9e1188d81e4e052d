"""The board: numbers computed by hand, and the same figures as other ways of measuring."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from experiments.estimators.board import (
    CHALLENGES,
    SIZES,
    Challenge,
    board,
    update_time,
    variants_of,
)
from experiments.estimators.processes import compare, every_group, gradients

from agentsgym.credit.estimators.grpo import grpo
from agentsgym.credit.estimators.rloo import rloo
from agentsgym.credit.estimators.step_return import step_return
from credit.enumerable import GROUP, expectation, stopping_process
from credit.test_bias import UNBIASED, of_steps

ONE_EPISODE = [name for name in CHALLENGES if name not in ("trials", "free shots")]


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


@pytest.mark.parametrize("size", SIZES)
def test_unscaled_grpo_is_short_by_one_of_the_group_and_not_noisier(size):
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


def test_what_is_unbiased_for_one_episode_is_so_on_the_board():
    assigns = {name: of_steps(name) for name in UNBIASED}
    for label, measured in board(assigns, {name: CHALLENGES[name] for name in ONE_EPISODE}, (4,)):
        assert measured.error < 1e-9, (label, measured.process)


def test_what_reads_the_batch_is_drawn():
    """In a batch of 16 groups this is `rloo`, so its figures must be within their intervals."""

    def by_batch(table):
        return rloo(table) * len(table.group) / 64

    [(_, drawn)] = board({"": by_batch}, {"trials": CHALLENGES["trials"]}, (4,))
    error, turned, noise = drawn.halves
    assert drawn.error <= error + 1e-9 and drawn.turned <= turned + 1e-9
    assert abs(drawn.noise - 1.0) <= noise + 1e-9

    def scaled(table):
        return rloo(table) / table.final_reward.std()

    [(_, drawn)] = board({"": scaled}, {"early luck": CHALLENGES["early luck"]}, (4,))
    assert 0 < drawn.halves[0] < 0.02 and drawn.halves[2] > 0
    spread = every_group(CHALLENGES["early luck"].process, 1)
    rewards = spread.table.final_reward
    deviation = np.sqrt(spread.chance @ (rewards - spread.chance @ rewards) ** 2)
    assert drawn.error == pytest.approx(1 - 1 / deviation, abs=0.02)


def test_the_order_of_rollouts_must_not_matter():
    def first(table):
        return table.final_reward[table.rollout] * (table.index[table.rollout] == 0)

    with pytest.raises(ValueError, match="order of a group's rollouts"):
        list(board({"": first}))


def test_nothing_of_the_gradient_left_is_no_division_by_zero():
    [(_, measured)] = board(variants_of(["reward"]), {"": CHALLENGES["late reward"]}, (4,))
    assert (measured.error, measured.turned) == pytest.approx((1.0, 1.0))
    assert measured.noise == np.inf


def test_time_is_positive():
    assert update_time(step_return) > 0


def doubled(table, *, times=2.0):
    """Twice the return without a baseline."""
    return times * table.final_reward[table.rollout]


def test_an_estimator_of_ones_own_by_its_path(capsys, monkeypatch):
    """Error 1, the right direction, and with one task a noise that does not depend on the group."""
    pytest.importorskip("trl")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "experiments"))
    import credit_board

    credit_board.measure_own([f"{__name__}.doubled"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3 * len({line["process"] for line in lines}) == 24
    for line in lines:
        assert line["estimator"] == "doubled"
        assert (line["error"], line["turned"]) == pytest.approx((1.0, 0.0))
    noise = [line["noise"] for line in lines if line["process"] == "many actions"]
    assert noise == pytest.approx([noise[0]] * 3)
