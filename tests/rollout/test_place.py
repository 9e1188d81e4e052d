"""Where a session's environment is played: which settings go together, and what a missing cluster
says. tests/ray_cluster plays on a real one (`make test-ray`)."""

import warnings

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs import ConfigError
from agentsgym.envs.settings import place_of
from agentsgym.rollout.rollout_workers.source import RaySource
from agentsgym.rollout.workers.env import RemoteEnv, hosted
from moody import MoodyEnv


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({}, "here"),
        ({"workers": 2}, "processes"),
        ({"workers": 2, "place": "here"}, "here"),
        ({"workers": 2, "place": "ray"}, "ray"),
    ],
)
def test_the_place_follows_from_the_workers_unless_it_is_named(config, place):
    assert place_of(MoodyEnv(None, config).config) == place


def test_here_means_no_worker():
    assert not isinstance(hosted(MoodyEnv(None, {"workers": 2, "place": "here"})), RemoteEnv)


@pytest.mark.parametrize("place", ["processes", "ray"])
def test_a_place_elsewhere_needs_workers(place):
    with pytest.raises(ConfigError, match="workers"):
        MoodyEnv(None, {"place": place})


@pytest.mark.parametrize(
    ("resources", "problem"),
    [({"num_cpus": -1}, "at least 0, got -1 for 'num_cpus'"), ({1: 1}, "worker_resources")],
)
def test_resources_are_names_with_amounts(resources, problem):
    with pytest.raises(ConfigError, match=problem):
        MoodyEnv(None, {"worker_resources": resources})


def test_rollout_workers_do_not_start_or_look_for_a_cluster(monkeypatch):
    import_ray()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"ray.workers is set, but .*: RAY_ADDRESS is not"):
        RaySource(None, None, None, workers=1)


def import_ray():
    """Ray; a loud line without it, because a skip alone is easily overlooked."""
    try:
        import ray
    except ImportError:
        warnings.warn("Ray is not installed: PLAYING ON A CLUSTER IS NOT TESTED", stacklevel=2)
        pytest.skip("needs the extra agentsgym[ray]")
    return ray


@pytest.mark.parametrize(
    ("address", "problem"),
    [(None, "RAY_ADDRESS is not set"), ("127.0.0.1:1", "ConnectionRefusedError at 127.0.0.1:1")],
)
def test_a_missing_cluster_is_said_before_anything_is_played(monkeypatch, address, problem):
    ray = import_ray()
    if address is None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=f"no Ray cluster: {problem}"):
        MoodyEnv(None, {"place": "ray", "workers": 1}).run_trial([{}], ScriptedAgent(["go"]))
    assert not ray.is_initialized()
