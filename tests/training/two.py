"""Two processes on the CPU (gloo), started by `accelerate launch`."""

import socket
import subprocess
import sys
from pathlib import Path

import torch

from helpers import child_environment


def run_two(module, out, timeout=280):
    """What the two processes of a module wrote into the folder `out`, rank by rank."""
    done = launch_two(module, out, timeout=timeout)
    where = max(done.stderr.find("Traceback"), 0)
    assert done.returncode == 0, done.stderr[where : where + 4000]
    return [torch.load(out / f"rank{k}.pt", weights_only=False) for k in range(2)]


def launch_two(module, *arguments, timeout=280, cwd=None):
    """Two processes of a module with these arguments, run to their end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # --multi_gpu starts one process per rank; on a machine (or with `use_cpu`) without a GPU they
    # talk over gloo. With --cpu, accelerate would start a single process.
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
        *("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"),
        *("--dynamo_backend", "no", "--main_process_ip", "127.0.0.1"),
        *("--main_process_port", str(port), "-m", module, *map(str, arguments)),
    ]
    tests = Path(__file__).parents[1]
    # A process alone ends in a second or so; one that waits for the other would wait for ever.
    return subprocess.run(
        command,
        env=child_environment(tests) | {"OMP_NUM_THREADS": "1"},
        cwd=cwd or tests.parent,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
