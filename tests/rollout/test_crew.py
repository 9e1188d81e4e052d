"""When a learner gives up its rollout workers, and when it does not: tests/ray_cluster has the
rest."""

import time

import pytest

from agentsgym.rollout.rollout_workers import crew as crew_module
from agentsgym.rollout.rollout_workers.actor import RemotePlayer
from agentsgym.rollout.rollout_workers.crew import MOST_FAILURES, Crew, WorkersFailed, wait_for_any
from agentsgym.rollout.workers.ray_actor import ray_package
from agentsgym.rollout.workers.worker import START_SECONDS


class Ray:
    """As much of the package as a crew asks of it that hires nobody."""

    def put(self, value):
        return value

    def wait(self, calls, num_returns, timeout):
        assert not calls
        return [], []

    def cluster_resources(self):
        return {"CPU": 1.0}


@pytest.fixture
def crew_of(monkeypatch):
    monkeypatch.setattr(crew_module, "ray_package", Ray)
    return lambda count: Crew(count, {}, b"")


def worker_in(crew, place, *, ready=True, seconds_ago=0.0):
    heard = time.monotonic() - seconds_ago
    crew.players[place] = RemotePlayer(place, None, ready=ready, heard=heard)
    return crew.players[place]


def lose(crew, place):
    crew._lose(worker_in(crew, place), "died")


def test_workers_that_a_trial_killed_until_it_was_given_up_are_not_the_last(crew_of):
    crew = crew_of(1)
    for _ in range(MOST_FAILURES):
        player = worker_in(crew, 0)
        crew._lose(player, "died")
    crew.succeeded(player)  # the trial is given up
    crew.check_start()
    assert crew.lost == MOST_FAILURES
    for _ in range(MOST_FAILURES):
        lose(crew, 0)
    with pytest.raises(WorkersFailed, match="no rollout worker is left: the rollout worker died"):
        crew.check_start()
    assert not ray_package().is_initialized()  # as by a call that ends an actor


def test_workers_without_room_are_named_also_when_others_played_before(crew_of, caplog):
    crew = crew_of(2)
    worker_in(crew, 0)
    worker_in(crew, 1, ready=False, seconds_ago=START_SECONDS + 1)
    crew.check_start()
    crew.check_start()
    assert caplog.text.count("could not be started within 300 seconds; 1 play") == 1
    lose(crew, 0)
    crew.check_start()  # its place is hired for again after a moment
    worker_in(crew, 0, ready=False)
    crew.check_start()
    worker_in(crew, 0, ready=False, seconds_ago=START_SECONDS + 1)
    with pytest.raises(WorkersFailed, match=r"could not be started .*; the cluster has CPU 1"):
        crew.check_start()


def test_without_a_call_the_wait_takes_its_time(monkeypatch):
    monkeypatch.setattr(crew_module, "ray_package", Ray)
    began = time.monotonic()
    assert wait_for_any([], 0.05) == []
    assert time.monotonic() - began >= 0.05
