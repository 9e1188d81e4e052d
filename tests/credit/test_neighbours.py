"""The neighbours on the board: numbers by hand, and exact expectations of their gradients."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from experiments.estimators.board import CHALLENGES
from experiments.estimators.neighbours import (
    batch_mean,
    best_play,
    every_batch,
    gains,
    max_rl,
    shaped,
    with_best_play,
)
from experiments.estimators.processes import Process, compare, every_group, gradients

from agentsgym.credit import table_of
from agentsgym.credit.estimators.rloo import rloo
from agentsgym.credit.estimators.trial import trial
from credit.enumerable import stopping_process, trial_process
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


def test_a_failed_rollout_is_no_failure():
    played = [rollout(0, 0, [1.0]), rollout(0, 1, [0.0]), rollout(0, 2, [0.0], failed=True)]
    assert max_rl(table_of(played)).tolist() == [1, -1, 0]


def won_or_lost(seed):
    """Two tasks, in which every third and every fifth trajectory earns 1, others 0."""
    process = stopping_process(seed)
    trajectories = [
        (*(replace(m, reward=0.0) for m in t[:-1]), replace(t[-1], reward=float(k % every == 0)))
        for every in (3, 5)
        for k, t in enumerate(process.trajectories)
    ]
    count = len(process.trajectories)
    return Process(process.theta, tuple(trajectories), (0,) * count + (1,) * count)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_max_rl_has_the_gradient_of_the_beginning_of_log_p(seed, centered):
    """Σ_{k < K} (1 − p)^k ∇p, the mean over the tasks."""
    process, size = won_or_lost(seed), 3
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


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", CHALLENGES)
def test_what_a_potential_pays_cancels_out(name, known):
    process = CHALLENGES[name].process
    groups = with_best_play(process, every_group(process, 3), known=known)
    assert groups.table.value.any()
    assert compare(expected(process, groups, shaped), process.true_gradient()).error < 1e-9


def test_gains_have_the_gradient_with_the_policys_own_values():
    """In these processes the policy sees the whole history."""
    for process in (trial_process((0.0, 1.0)), CHALLENGES["early luck"].process):
        groups = every_group(process, 3)
        assert compare(expected(process, groups, gains), process.true_gradient()).error < 1e-9
        best = with_best_play(process, groups)
        assert not np.allclose(gains(best.table), gains(groups.table))
    assert compare(expected(process, best, shaped), process.true_gradient()).error < 1e-9


def test_gains_of_the_best_play_turn_the_gradient():
    process = CHALLENGES["variable length"].process
    groups = with_best_play(process, every_group(process, 3))
    assert compare(expected(process, groups, gains), process.true_gradient()).turned > 0.5


def test_the_best_play_by_hand():
    """A look finds the door; without one it is one of two, or known with the task."""
    process = CHALLENGES["free shots"].process
    looked = [t[0].action == 0 for t in process.trajectories]
    for known, blind in ((False, 0.5), (True, 1.0)):
        values = best_play(process, known=known)
        assert {one[0] for one in values} == {1.0}
        assert [one[1] for one in values] == [1.0 if look else blind for look in looked]
    dear = best_play(CHALLENGES["repeated states"].process)
    assert max(dear, key=len) == [1.0, pytest.approx(1.0)]
    assert all(a >= b for one in dear for a, b in pairwise(one))


def test_without_a_potential_it_is_trial():
    groups = every_group(trial_process((1.0, 1.0)), 2)
    table = replace(groups.table, value=np.zeros(len(groups.table.value)))
    np.testing.assert_allclose(shaped(table), trial(table), atol=1e-12)
