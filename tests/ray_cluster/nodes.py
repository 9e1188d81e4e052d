"""What tests ask of the cluster."""

import time
from contextlib import suppress

import psutil


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


def actor_processes():
    """The processes in which actors play rollouts."""
    return [p.pid for p in psutil.process_iter() if _command(p).startswith("ray::RolloutActor")]


def number_of_actors(node):
    """How many actors run on a node of the cluster; Ray calls its other processes `ray::IDLE`."""
    raylets = [psutil.Process(info.process.pid) for info in node.all_processes["raylet"]]
    commands = [_command(child) for raylet in raylets for child in raylet.children()]
    return sum(command.startswith("ray::") and "IDLE" not in command for command in commands)


def _command(process):
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def at_number(number, act):
    """A fault of a `CompletionsServer` that does nothing but to call `act` during one completion,
    so that whoever asked for it waits."""
    seen = []

    def fault(_):
        seen.append(True)
        if len(seen) == number:
            act()

    return fault
