"""What a missing Ray cluster says; a real one is in tests/ray_cluster."""

import warnings

import pytest

from agentsgym.envs import ConfigError
from agentsgym.rollout.ray.source import RaySource
from agentsgym.training import GRPOEnvConfig


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
def test_no_cluster_is_started_or_looked_for(monkeypatch, address, problem):
    ray = import_ray()
    if address is None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=f"no Ray cluster: {problem}"):
        RaySource(None, None, None, workers=1)
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ray": {"workers": 2}}, r"ray.workers need servers"),
        ({"engine": {"urls": ["http://a"]}, "ray": {"resources": {"num_cpus": -1}}}, "num_cpus"),
    ],
)
def test_actors_need_servers_and_resources_that_exist(tmp_path, options, problem):
    with pytest.raises(ValueError, match=problem):
        GRPOEnvConfig(output_dir=str(tmp_path), use_cpu=True, **options)
