"""Intervals, by hand and by simulation."""

import math

import numpy as np
import pytest

from agentsgym.evaluation import (
    cluster_bootstrap,
    cluster_mean,
    mean_interval,
    rate_interval,
    wilson,
)
from agentsgym.evaluation.intervals import t_cdf, t_quantile


def test_wilson_by_hand():
    # 8 of 10 at z = 1.96: the textbook example.
    assert wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    # None of n: 0 to z²/(n + z²).
    assert wilson(0, 10) == pytest.approx((0.0, 3.841459 / 13.841459), abs=1e-6)
    assert wilson(10, 10)[1] == pytest.approx(1.0)


def test_clusters_are_drawn_whole():
    # Two clusters, one all lost, one all won: the mean is 0, 1/2 or 1 with odds 1:2:1, so the
    # 95 % interval is everything; drawing the 200 episodes one by one would give about 0.43-0.57.
    values = [0.0] * 100 + [1.0] * 100
    clusters = ["a"] * 100 + ["b"] * 100
    assert cluster_bootstrap(values, clusters) == (0.0, 1.0)
    low, high = cluster_bootstrap(values, list(range(200)))
    assert 0.40 < low < 0.46 and 0.54 < high < 0.60


def test_without_values_there_is_no_interval():
    assert all(math.isnan(bound) for bound in cluster_bootstrap([], []))
    with pytest.raises(ValueError, match="as many clusters"):
        cluster_bootstrap([1.0], [])


def test_losing_every_game_is_no_proof_that_none_can_be_won():
    # 30 losses in 10 clusters: the bootstrap sees no spread, Wilson counts 10 clusters.
    clusters = [k // 3 for k in range(30)]
    assert rate_interval([0.0] * 30, clusters) == wilson(0, 10)
    assert rate_interval([1.0] * 30, clusters) == wilson(10, 10)
    many = [k // 3 for k in range(60)]
    assert rate_interval([0.0, 1.0] * 30, many) == cluster_bootstrap([0.0, 1.0] * 30, many)


@pytest.mark.parametrize("number", [6, 30])
def test_a_share_that_all_clusters_have_is_no_proof_of_it(number):
    low, high = rate_interval([0.0, 1.0] * number, [k // 2 for k in range(2 * number)])
    unseen = wilson(0, number)[1]
    assert (low, high) == pytest.approx((0.5 - unseen / 2, 0.5 + unseen / 2))


def test_the_interval_covers_the_truth():
    # 64 secrets of very different difficulty (mean 0.3), 8 episodes each.
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(64), 8).tolist()
    covered = naive = 0
    for trial in range(200):
        wins = rng.random((64, 8)) < rng.beta(0.6, 1.4, size=(64, 1))
        low, high = cluster_bootstrap(
            wins.ravel().astype(float).tolist(), clusters, seed=trial, resamples=500
        )
        covered += low <= 0.3 <= high
        narrow_low, narrow_high = wilson(int(wins.sum()), wins.size)
        naive += narrow_low <= 0.3 <= narrow_high
    assert 0.90 <= covered / 200 <= 0.99
    assert naive / 200 < 0.85  # what ignoring the clusters would promise falsely


@pytest.mark.parametrize(
    ("dof", "expected"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (10, 2.22814), (19, 2.09302), (100, 1.98397)],
)
def test_quantiles_of_students_t_are_those_of_the_textbook(dof, expected):
    assert t_quantile(0.975, dof) == pytest.approx(expected, abs=1e-4)
    assert t_quantile(0.025, dof) == -t_quantile(0.975, dof)
    assert t_cdf(t_quantile(0.9, dof), dof) == pytest.approx(0.9, abs=1e-12)


def test_the_mean_over_clusters_by_hand():
    # Clusters with the means 1, 2 and 6: 3 ± 4.3027 · sqrt(7 / 3).
    mean = cluster_mean([1.0, 1.0, 2.0, 2.0, 6.0, 6.0], list("aabbcc"))
    assert (mean.mean, mean.clusters) == (3.0, 3)
    assert mean.error == pytest.approx(math.sqrt(7 / 3))
    assert mean.interval() == pytest.approx((3 - 6.57235, 3 + 6.57235), abs=1e-4)
    # Clusters of 1 and 2 values: without one, the means are 3/1 and 0, whose difference is 3.
    assert cluster_mean([0.0, 3.0, 3.0], list("abb")).error == pytest.approx(1.5)


def test_one_cluster_shows_no_spread():
    assert all(math.isnan(bound) for bound in mean_interval([1.0, 3.0], ["a", "a"]))
    assert rate_interval([1.0, 0.0], ["a", "a"]) == (0.0, 1.0)
    assert math.isnan(cluster_mean([], []).mean)


@pytest.mark.parametrize(
    ("sizes", "least"),
    [([4] * 8, 0.94), ([4, 4, 4, 3, 3, 3, 3, 3], 0.94), ([1, 2, 4, 8] * 2, 0.91)],
)
def test_the_interval_covers_the_truth_with_eight_clusters(sizes, least):
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(8), sizes).tolist()
    covered = resampled = 0
    for trial in range(400):
        noise = rng.normal(size=sum(sizes))
        values = (np.repeat(rng.normal(0.0, 1.0, 8), sizes) + noise).tolist()
        low, high = mean_interval(values, clusters)
        covered += low <= 0.0 <= high
        low, high = cluster_bootstrap(values, clusters, seed=trial, resamples=300)
        resampled += low <= 0.0 <= high
    assert covered / 400 >= least
    assert resampled / 400 < 0.91  # what resampling eight clusters would promise falsely
