"""Exact expectations of every estimator's gradient, on processes that can be enumerated.

The numbers in `ESTIMATORS` and `PUBLISHED` (and those in `MEASURED`, which docstrings state) are
medians over `PROCESSES` random stopping processes (seeds 0, 1, …) in groups of 3.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from experiments.estimators.by_state import PUBLISHED
from experiments.estimators.processes import compare

from agentsgym.credit import ESTIMATORS
from agentsgym.credit.estimators.gigpo import gigpo
from agentsgym.credit.estimators.grpo import grpo
from agentsgym.credit.estimators.rloo import rloo
from agentsgym.credit.estimators.step_return import step_return
from agentsgym.credit.estimators.trial import trial
from agentsgym.credit.estimators.trial_cv import trial_cv
from credit.enumerable import (
    discounted,
    expectation,
    gradient_of_each,
    noted_process,
    one_by_one,
    per_all_tokens,
    per_length,
    spelled_process,
    stopping_process,
    trial_process,
)
from credit.played import OF_BATCHES

PROCESSES = 5
VARIANTS = {
    f"{e.name} {dict(v.options) or ''}".strip(): (e, v)
    for e in (ESTIMATORS | PUBLISHED).values()
    for v in e.variants
    if v.error is not None
}
UNBIASED = [name for name, (_, variant) in VARIANTS.items() if variant.error == 0.0]
BIASED = [name for name in VARIANTS if name not in UNBIASED]


def own_reward(table):
    """What the estimator "reward" does where a step is one token."""
    return table.reward * table.score_weight


def of_steps(name):
    """The function of a step table that a variant is."""
    estimator, variant = VARIANTS[name]
    if estimator.per == "token":
        return own_reward
    assign = partial(estimator, **variant.options)
    return one_by_one(assign) if estimator.name in OF_BATCHES else assign


def test_the_process_is_the_one_of_the_definition():
    process = stopping_process()
    assert len(process.trajectories) == 15
    assert process.probabilities().sum() == pytest.approx(1.0)
    assert len(trial_process((0.0, 1.0)).trajectories) == 9


@pytest.mark.parametrize("make", [stopping_process, partial(trial_process, (0.0, 1.0))])
def test_the_true_gradient_is_the_slope_of_the_objective(make):
    process = make()
    truth = process.true_gradient()
    for index in [(0, 0), (1, 1), (3, 1)]:
        step = np.zeros_like(process.theta)
        step[index] = 1e-5
        up, down = (replace(process, theta=process.theta + s) for s in (step, -step))
        slope = (up.probabilities() - down.probabilities()) @ process.values() / 2e-5
        assert truth[index] == pytest.approx(slope, abs=1e-9)


@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize("seed", range(2))
def test_unbiased_where_the_policy_decides_when_to_stop(name, seed):
    process = stopping_process(seed)
    bias = compare(expectation(process, of_steps(name)), process.true_gradient())
    assert bias.error < 1e-9


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_with_a_note_in_the_episode(name):
    process = noted_process()
    assert len(process.trajectories) == 13
    bias = compare(expectation(process, of_steps(name)), process.true_gradient())
    assert bias.error < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_unscaled_grpo_is_two_thirds_of_the_gradient(seed):
    process = stopping_process(seed)
    unscaled = partial(grpo, scale_rewards="none")
    np.testing.assert_allclose(
        expectation(process, unscaled), process.true_gradient() * 2 / 3, rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("estimator", [trial, trial_cv, rloo])
@pytest.mark.parametrize("weights", [(0.0, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("make", [trial_process, spelled_process])
def test_trial_is_unbiased_for_the_score_of_the_whole_trial(make, weights, estimator):
    process = make(weights)
    bias = compare(expectation(process, estimator), process.true_gradient())
    assert bias.error < 1e-9


def test_a_free_shot_is_credited_by_trial_and_by_whole_rollout_estimators_only():
    """Per-episode credit never teaches exploration: the free shot's gradient is missing."""
    process = trial_process((0.0, 1.0))
    first = sorted({m.state for t in process.trajectories for m in t if m.episode == 0})
    truth = process.true_gradient()
    assert np.abs(truth[first]).max() > 1e-3
    for estimator in (trial, rloo):
        np.testing.assert_allclose(expectation(process, estimator), truth, rtol=0, atol=1e-9)
    for estimator in (step_return, partial(trial, trial_gamma=0.0)):
        gradient = expectation(process, estimator)
        assert np.abs(gradient[first]).max() < 1e-12
        later = [s for s in range(len(truth)) if s not in first]
        np.testing.assert_allclose(gradient[later], truth[later], rtol=0, atol=1e-9)


def test_gigpo_pays_a_free_shot_a_part_of_its_gradient():
    """Its step part knows nothing of later episodes, so only the episode part 1/(1 + ω) pays,
    and all of it where nobody else was in that state."""
    process = trial_process((0.0, 1.0))
    first = sorted({m.state for t in process.trajectories for m in t if m.episode == 0})
    share = expectation(process, gigpo)[first] / process.true_gradient()[first]
    np.testing.assert_allclose(share[0], 0.5, atol=1e-9)
    assert share[1].min() > 0.5 and share[1].max() < 1.0


def medians(estimator, gamma=1.0, **options):
    """Median error, scale and error after the best rescaling, against ∇J discounted by gamma."""
    biases = []
    for seed in range(PROCESSES):
        process = stopping_process(seed)
        truth = discounted(process, gamma).true_gradient()
        bias = compare(expectation(process, estimator, **options), truth)
        biases.append((bias.error, bias.scale, bias.turned))
    return tuple(np.median(biases, axis=0))


@pytest.mark.parametrize("name", BIASED)
def test_the_table_of_estimators_states_the_bias(name):
    error, _, turned = medians(of_steps(name))
    stated = VARIANTS[name][1]
    assert (error, turned) == pytest.approx((stated.error, stated.turned), abs=0.006)


# Error, scale (projection on the true gradient), and error after the best rescaling.
MEASURED = {
    "step_return, gamma 0.9": (0.05, 0.96, 0.05),
    "step_return, gamma 0.9, against the discounted return": (0.06, 1.02, 0.05),
    "gigpo, gamma 0.9": (0.02, 0.98, 0.02),
    "rloo, loss over the rollout's tokens": (0.53, 0.51, 0.32),
    "rloo, loss over all tokens of the group": (0.52, 0.48, 0.10),
}
CASES = {
    "step_return, gamma 0.9": (partial(step_return, gamma=0.9), {}),
    "step_return, gamma 0.9, against the discounted return": (
        partial(step_return, gamma=0.9),
        {"gamma": 0.9},
    ),
    "gigpo, gamma 0.9": (partial(gigpo, gamma=0.9), {}),
    "rloo, loss over the rollout's tokens": (rloo, {"weights": per_length}),
    "rloo, loss over all tokens of the group": (rloo, {"weights": per_all_tokens}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_biased_is_so_by_the_number_in_its_docstring(name):
    estimator, options = CASES[name]
    assert medians(estimator, **options) == pytest.approx(MEASURED[name], abs=0.006)


# The same three numbers for trials of two scored episodes.
TRIAL = {
    "gamma 0.9": (partial(trial, gamma=0.9), (0.04, 0.99, 0.03)),
    "trial_gamma 0.9": (partial(trial, trial_gamma=0.9), (0.06, 0.99, 0.06)),
    "trial_gamma 0": (partial(trial, trial_gamma=0.0), (0.59, 0.89, 0.54)),
}


@pytest.mark.parametrize("name", TRIAL)
def test_discounts_bias_trial_by_the_number_in_its_docstring(name):
    estimator, stated = TRIAL[name]
    biases = []
    for seed in range(PROCESSES):
        process = trial_process((1.0, 1.0), seed)
        bias = compare(expectation(process, estimator), process.true_gradient())
        biases.append((bias.error, bias.scale, bias.turned))
    assert np.median(biases, axis=0) == pytest.approx(stated, abs=0.006)


def variance(process, estimator):
    """Summed variance of the gradient of one group."""
    each, chance = gradient_of_each(process, estimator)
    mean = np.tensordot(chance, each, 1)
    return float(chance @ ((each - mean) ** 2).sum(axis=(1, 2)))


def test_trial_has_mostly_less_variance_than_the_whole_trials_return():
    """Both are unbiased. Earlier rewards only add noise to the latter, but the baseline of "trial"
    takes them from the others: a later step that few reach may come out noisier."""
    processes = [trial_process((1.0, 1.0), seed) for seed in range(PROCESSES)]
    ratios = [variance(p, trial) / variance(p, rloo) for p in processes]
    measured = min(ratios), np.median(ratios), max(ratios)
    assert measured == pytest.approx((0.77, 0.91, 1.17), abs=0.006)
