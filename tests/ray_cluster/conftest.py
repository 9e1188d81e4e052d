"""A real Ray cluster of three nodes on this machine. Run with `make test-doors DOOR=ray`."""

import pytest
from nodes import number_of_actors

from agentsgym.rollout.processes.worker import stop_workers

STORE_BYTES = 100 * 2**20


@pytest.fixture(scope="module")
def cluster():
    """A head without CPUs and two nodes with two each, to which this process is connected."""
    ray = pytest.importorskip("ray", reason="needs the extra agentsgym[ray]")
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": STORE_BYTES}
    )
    for _ in range(2):
        made.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    stop_workers()
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def lose_a_node(cluster):
    """Kills the node with the most actors; a new one takes its place after the test."""
    lost = []

    def lose() -> None:
        lost.append(max(cluster.worker_nodes, key=number_of_actors))
        cluster.remove_node(lost[-1], allow_graceful=False)

    yield lose
    for _ in lost:
        cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
