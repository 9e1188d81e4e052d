"""The arithmetic of docs/distributed.md, against numbers that can be worked out by hand."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "experiments"))

from step_time import Cluster, Rates, Work, step_time

WORK = Work(parameters=1e9, rollouts=10, steps=20, sampled=50, row=1000, passes=8, sent=2e9)
RATES = Rates(
    sampled=100.0,
    flops=1e12,
    use=0.5,
    env_steps=10.0,
    overhead=0.01,
    write=1e9,
    read=2e9,
)
CLUSTER = Cluster("", servers=4, learners=8, readers=3, cores=2, threads=1)


def test_the_parts_of_a_step():
    time = step_time(WORK, RATES, CLUSTER)

    assert time.sampling == pytest.approx(25.0)  # 10,000 tokens at 4 x 100 a second
    assert time.environments == pytest.approx(10.0)  # 200 steps at 2 x 10 a second
    assert time.threads == pytest.approx(2.0)  # 200 steps of 0.01 s
    assert time.weights == pytest.approx(5.0)  # 2 GB written at 1 GB/s, read 3 times at 2 GB/s
    assert time.learning == pytest.approx(20.0)  # 8e13 operations at 8 x 0.5e12 a second


def test_a_synchronous_step_adds_and_one_ahead_takes_the_longer_side():
    time = step_time(WORK, RATES, CLUSTER)

    assert time.playing == time.sampling
    assert time.synchronous == pytest.approx(25 + 5 + 20)
    assert time.ahead == pytest.approx(25 + 5)
    assert time.learner_waits == pytest.approx(1 - 20 / 30)


def test_the_parts_of_playing_add_up_where_a_place_waits_for_its_environment():
    time = step_time(WORK, RATES, CLUSTER).in_turns

    assert time.playing == pytest.approx(25 + 10 + 2)
    assert time.synchronous == pytest.approx(37 + 5 + 20)
    assert time.ahead == pytest.approx(37 + 5)
