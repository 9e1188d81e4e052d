"""Tries to start an actor for an environment; tests/ray_cluster has those with a cluster."""

from types import SimpleNamespace

import pytest

from agentsgym.rollout.workers import ray_actor
from agentsgym.rollout.workers.ray_actor import NoRoom, RayWorker
from agentsgym.rollout.workers.worker import WorkerLost


class DyingActors(RayWorker):
    """Its actors die while they get their environment."""

    started = 0

    def _start(self):
        self.started += 1

    def _reply(self, method, arguments, timeout):
        raise WorkerLost("the Ray actor died")


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(ray_actor, "_stored", lambda env_id, payload: payload)
    monkeypatch.setattr(ray_actor, "ray_package", SimpleNamespace)
    return DyingActors({}, NoRoom())


def installed(worker):
    with pytest.raises(WorkerLost, match="could not be started: the Ray actor died"):
        worker._install(1, b"")
    return worker.started


def test_an_actor_that_dies_at_its_start_is_replaced_some_times(worker, monkeypatch):
    monkeypatch.setattr(ray_actor.time, "sleep", lambda seconds: None)
    assert installed(worker) == 3


def test_a_worker_that_is_stopped_meanwhile_starts_no_other_actor(worker, monkeypatch):
    monkeypatch.setattr(ray_actor.time, "sleep", lambda seconds: worker.stop())
    assert installed(worker) == 0
    monkeypatch.setattr(ray_actor.time, "sleep", lambda seconds: None)
    assert installed(worker) == 3
