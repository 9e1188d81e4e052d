"""The neighbours on the board: numbers by hand, and exact expectations of their gradients."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.estimators.board import CHALLENGES
from experiments.estimators.neighbours import (
    batch_mean,
    every_batch,
    gains,
    max_rl,
    shaped,
    with_best_play,
)
from experiments.estimators.processes import Process, compare, every_group, gradients

from agentsgym.credit import table_of
from agentsgym.credit.estimators.rloo import rloo
from credit.enumerable import stopping_process
from credit.played import rollout


def expected(process, groups, assign):
    """The expected gradient over groups or batches, shape (S, A)."""
    coefficient = assign(groups.table)[groups.tokens.step] / groups.members.shape[1]
    return np.tensordot(groups.chance, gradients(process, groups, coefficient), 1)


# -- MaxRL -----------------------------------------------------------------------------------------


def test_a_rare_success_weighs_more():
    """One of four: 4 − 1 against −1. Two of four: 2 − 1 against −1. None: nothing."""
    groups = [(1, 0, 0, 0), (1, 0, 0, 1), (0, 0, 0, 0), (-1, 0, 0, 0)]
    table = table_of(
        [rollout(g, k, [float(r)]) for g, own in enumerate(groups) for k, r in enumerate(own)]
    )
    assert max_rl(table).tolist() == [3, -1, -1, -1, 1, -1, -1, 1, *[0] * 8]
    assert max_rl(table, centered=False).tolist() == [4, 0, 0, 0, 2, 0, 0, 2, *[0] * 8]


def won_or_lost():
    """Two tasks, in which every third and every fifth trajectory earns 1, others 0."""
    process = stopping_process(0)
    trajectories = [
        (*(replace(m, reward=0.0) for m in t[:-1]), replace(t[-1], reward=float(k % every == 0)))
        for every in (3, 5)
        for k, t in enumerate(process.trajectories)
    ]
    count = len(process.trajectories)
    return Process(process.theta, tuple(trajectories), (0,) * count + (1,) * count)


@pytest.mark.parametrize("centered", [True, False])
def test_max_rl_has_the_gradient_of_the_beginning_of_log_p(centered):
    """Σ_{k < K} (1 − p)^k ∇p, the mean over the tasks."""
    process, size = won_or_lost(), 3
    truth = np.zeros_like(process.theta)
    for own in process.by_task:
        alone = Process(process.theta, tuple(process.trajectories[k] for k in own))
        p = alone.probabilities() @ alone.values()
        truth += sum((1 - p) ** k for k in range(size - centered)) * alone.true_gradient() / 2
    groups = every_group(process, size)
    found = expected(process, groups, lambda table: max_rl(table, centered=centered))
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12)
    assert compare(found, process.true_gradient()).turned > 1e-3


# -- each task once --------------------------------------------------------------------------------


def test_a_lone_rollout_is_compared_with_those_of_other_tasks():
    played = [rollout(0, 0, [1.0]), rollout(1, 0, [4.0]), rollout(2, 0, [0.0], failed=True)]
    assert rloo(table_of(played)).tolist() == [0, 0, 0]
    assert batch_mean(table_of(played)).tolist() == [-3, 3, 0]
    assert batch_mean(table_of(played[:1])).tolist() == [0]


@pytest.mark.parametrize("name", CHALLENGES)
def test_a_batch_of_tasks_has_the_gradient(name):
    process = CHALLENGES[name].process
    batch = every_batch(process, 3)
    assert batch.chance.sum() == pytest.approx(1.0)
    assert compare(expected(process, batch, rloo), process.true_gradient()).error < 1e-9


# -- potentials ------------------------------------------------------------------------------------


def test_gains_of_a_potential_add_up_to_the_return():
    """Values 5 and 1 before the two steps: 2 + 1 − 5, and 3 − 1; from the first on they sum to 0,
    from the second on to 2, against the other's 4 − 3."""
    table = table_of([rollout(0, 0, [2.0, 3.0]), rollout(0, 1, [4.0])])
    table = replace(table, value=np.array([5.0, 1.0, 3.0]))
    assert gains(table).tolist() == [-2, 2, 1]
    assert shaped(table).tolist() == [-1, 1, 1]


@pytest.mark.parametrize("name", CHALLENGES)
def test_what_a_potential_pays_cancels_out(name):
    process = CHALLENGES[name].process
    groups = with_best_play(process, every_group(process, 3))
    assert groups.table.value.any()
    assert compare(expected(process, groups, shaped), process.true_gradient()).error < 1e-9
