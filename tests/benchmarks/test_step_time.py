"""The arithmetic of docs/scaling.md, against numbers that can be worked out by hand."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "experiments"))

from step_time import Cluster, Rates, StepTime, Work, rows, step_time
from step_time_check import BASE, predicted, seconds

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


@pytest.mark.parametrize(
    ("cores", "threads", "slowest"), [(1, 1, 20.0), (100, 1, 2.0), (100, 2, 1.0)]
)
def test_playing_is_as_slow_as_its_slowest_part(cores, threads, slowest):
    cluster = Cluster("", servers=1000, learners=1, cores=cores, threads=threads)
    assert step_time(WORK, RATES, cluster).playing == pytest.approx(slowest)


def test_the_parts_of_playing_add_up_where_a_place_waits_for_its_environment():
    time = step_time(WORK, RATES, CLUSTER).in_turns

    assert time.playing == pytest.approx(25 + 10 + 2)
    assert time.synchronous == pytest.approx(37 + 5 + 20)
    assert time.ahead == pytest.approx(37 + 5)


def test_a_training_in_another_setting_is_predicted_from_the_parts_of_one():
    base = StepTime(sampling=4.0, environments=1.0, threads=2.0, weights=0.5, learning=8.0)
    longer = replace(BASE, turns=3 * BASE.turns, env_seconds=0.01)

    parts = predicted(longer, base)

    worked = 3 * BASE.steps * 0.01
    assert parts.environments == pytest.approx(3.0 + worked)
    assert (parts.sampling, parts.threads, parts.learning) == (12.0, 6.0, 24.0)
    assert seconds(longer, parts) == pytest.approx(max(12.0, 3.0 + worked) + 0.5 + 24.0)
    ahead = replace(longer, staleness=1)
    assert seconds(ahead, parts.in_turns) == pytest.approx(max(21.0 + worked, 24.0) + 0.5)


def test_learners_that_share_the_gpu_have_no_step_ahead():
    one_gpu = rows()[0]
    assert one_gpu[-2:] == ("not possible", "not possible")
    assert [float(cell) for cell in one_gpu[1:7]] == [413, 1.4, 15, 0.0, 295, 708]
