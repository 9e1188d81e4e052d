"""What tests ask of the cluster."""

import time


def ray():
    import ray

    return ray


def free_cpus():
    """After a moment in which the nodes notice that the actors have ended."""
    end = time.monotonic() + 30
    every = ray().cluster_resources()["CPU"]
    while (free := ray().available_resources().get("CPU", 0)) < every:
        if time.monotonic() > end:
            break
        time.sleep(0.2)
    return free


def ray_folder():
    """Where the cluster of this process writes its logs."""
    return ray()._private.worker._global_node.get_session_dir_path()
