"""What tests ask of the cluster."""

import time
from contextlib import suppress
from pathlib import Path


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
    """The processes of this cluster in which actors play rollouts."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if _command(process).startswith(b"ray::RolloutActor") and _writes_to(process, ray_folder())
    ]


def number_of_actors(node):
    """How many actors run on a node of the cluster."""
    parents = {info.process.pid for info in node.all_processes["raylet"]}
    processes = Path("/proc").glob("[0-9]*")
    return sum(_is_actor(process) and _parent(process) in parents for process in processes)


def at_number(number, act):
    """A fault of a `CompletionsServer` that does nothing but to call `act` during one completion,
    so that whoever asked for it waits."""
    seen = []

    def fault(_):
        seen.append(True)
        if len(seen) == number:
            act()

    return fault


def _is_actor(process):
    """Ray calls the others `ray::IDLE`."""
    command = _command(process)
    return command.startswith(b"ray::") and b"IDLE" not in command


def _parent(process):
    with suppress(OSError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _command(process):
    with suppress(OSError):
        return (process / "cmdline").read_bytes()
    return b""


def _writes_to(process, folder):
    with suppress(OSError):
        return any(str(file.readlink()).startswith(folder) for file in (process / "fd").iterdir())
    return False
