"""The command line and the environment with which a run starts a vLLM server of its own."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsgym.generation.settings import ServedModel

_CPU_CONTEXT = 8192  # longest context on a CPU if nothing says how long rollouts are
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has
_SHARED = 0.45  # share of a GPU's memory for a server beside a learner
# What launchers of several processes set; a server is none of those processes.
_OF_LAUNCHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "FSDP_", "DEEPSPEED_")
# Our module path must not reach the interpreter of another virtual environment.
_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class NoCommand(ValueError):
    """There is no such program as the one that should serve."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server runs: on the GPU `device` (its name in CUDA_VISIBLE_DEVICES), which `sharers`
    processes share; on the CPU if it is None."""

    device: str | None = None
    sharers: int = 1


def places(count: int, devices: Sequence[str], learners: int) -> list[Place]:
    """A place for each of `count` servers. Learners hold the first GPUs; each server gets one of
    the others, from the last on, and shares GPUs only if there are too few."""
    if not devices:
        return [Place()] * count
    free = list(devices[learners:]) or list(devices)
    chosen = [free[-1 - index % len(free)] for index in range(count)]
    busy = devices[:learners]
    return [Place(device, chosen.count(device) + (device in busy)) for device in chosen]


def find_program(command: str | None) -> list[str]:
    """The program that serves: `command` (a vllm executable, or the Python of an environment that
    has vLLM), by default the vllm of this environment. Raises NoCommand."""
    given = command or str(Path(sys.executable).with_name("vllm"))
    found = shutil.which(os.path.expanduser(given)) or (None if command else shutil.which("vllm"))
    if found is None:
        raise NoCommand(
            f"no program {given!r} can be started; name one that serves vLLM, such as "
            "/other/venv/bin/vllm or that environment's python"
        )
    is_python = Path(found).name.startswith("python")
    # A relative path would be another one in the server's working directory.
    program = os.path.abspath(found)
    return [program, *(["-m", "vllm.entrypoints.openai.api_server"] if is_python else ["serve"])]


def serve_command(
    program: Sequence[str], model: ServedModel, port: int, place: Place, more: Sequence[str]
) -> list[str]:
    """The command of one server; the user's own arguments `more` come last, so they win."""
    source = [model.folder] if program[-1] == "serve" else ["--model", model.folder]
    command = [*program, *source, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", model.name, "--dtype", model.dtype]
    command += ["--logprobs-mode", "processed_logprobs"]
    command += _lora(model.lora_rank) if model.lora_rank else []
    known = [length for length in (model.context, model.longest) if length]
    if place.device is None:
        length = str(min(known) if model.context else min([*known, _CPU_CONTEXT]))
        command += ["--enforce-eager", "--no-enable-chunked-prefill"]
        command += ["--max-model-len", length, "--max-num-batched-tokens", length]
    elif model.context:
        command += ["--max-model-len", str(min(known))]
    if place.device is not None and place.sharers > 1:
        command += ["--gpu-memory-utilization", f"{2 * _SHARED / place.sharers:.2f}"]
    return [*command, *more]


def _lora(rank: int) -> list[str]:
    fits = next((offered for offered in _LORA_RANKS if offered >= rank), rank)
    # Two adapters: a new version is loaded before the old one is dropped.
    counts = ["--max-loras", "2", "--max-cpu-loras", "4"]
    return ["--enable-lora", *counts, "--max-lora-rank", str(fits)]


def serve_environment(
    ours: Mapping[str, str], place: Place, key: str, *, foreign: bool
) -> dict[str, str]:
    """The server's environment variables. `foreign` says that its program is of another virtual
    environment."""
    dropped = (*_OF_LAUNCHERS, *(_OF_PYTHON if foreign else ()))
    found = {k: v for k, v in ours.items() if k not in dropped and not k.startswith(_PREFIXES)}
    found = {"VLLM_NO_USAGE_STATS": "1"} | found
    found |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    found["VLLM_API_KEY"] = key
    if place.device is not None:
        return found | {"CUDA_VISIBLE_DEVICES": place.device}
    cpu = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return cpu | found
