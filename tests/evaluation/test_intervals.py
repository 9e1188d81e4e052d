"""Intervals, by hand and by simulation."""

import math

import numpy as np
import pytest

from agentsgym.evaluation import cluster_bootstrap, rate_interval, wilson


def test_wilson_by_hand():
    # 8 of 10 at z = 1.96: the textbook example.
    assert wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    # None of n: 0 to z²/(n + z²).
    assert wilson(0, 10) == pytest.approx((0.0, 3.841459 / 13.841459), abs=1e-6)
    assert wilson(10, 10)[1] == pytest.approx(1.0)


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_impossible_counts(successes, trials):
    with pytest.raises(ValueError, match="0 <= successes <= trials"):
        wilson(successes, trials)


def test_clusters_are_drawn_whole():
    # Two clusters, one all lost, one all won: the mean is 0, 1/2 or 1 with odds 1:2:1, so the
    # 95 % interval is everything; drawing the 200 episodes one by one would give about 0.43-0.57.
    values = [0.0] * 100 + [1.0] * 100
    clusters = ["a"] * 100 + ["b"] * 100
    assert cluster_bootstrap(values, clusters) == (0.0, 1.0)
    low, high = cluster_bootstrap(values, list(range(200)))
    assert 0.40 < low < 0.46 and 0.54 < high < 0.60


def test_a_larger_cluster_weighs_more():
    # One cluster is a single win, the other three losses: means 1, 1/4 and 0.
    low, high = cluster_bootstrap([1.0, 0.0, 0.0, 0.0], ["a", "b", "b", "b"])
    assert (low, high) == (0.0, 1.0)
    middle = cluster_bootstrap([1.0, 0.0, 0.0, 0.0], ["a", "b", "b", "b"], level=0.2)
    assert middle == (0.25, 0.25)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(1).random(50).tolist()
    first = cluster_bootstrap(values, range(50), seed=3)
    assert first == cluster_bootstrap(values, range(50), seed=3)
    assert first != cluster_bootstrap(values, range(50), seed=4)


def test_no_values_no_interval():
    assert all(math.isnan(bound) for bound in cluster_bootstrap([], []))
    with pytest.raises(ValueError, match="as many clusters"):
        cluster_bootstrap([1.0], [])


def test_all_lost_is_no_proof_of_never():
    # 30 losses in 10 clusters: the bootstrap sees no spread, Wilson counts 10 clusters.
    clusters = [k // 3 for k in range(30)]
    assert rate_interval([0.0] * 30, clusters) == wilson(0, 10)
    assert rate_interval([1.0] * 30, clusters) == wilson(10, 10)
    assert rate_interval([0.0, 1.0] * 15, clusters) == cluster_bootstrap([0.0, 1.0] * 15, clusters)


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
