"""The servers of an engine that settings ask to launch: started by one process, used by all."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.generation.vllm.launcher import LaunchFailed, VLLMServers
from agentsgym.generation.vllm.serve_command import places
from agentsgym.types.text import remember_secret


@dataclass(frozen=True, slots=True)
class Launched:
    """Where the servers are and the key that they want; `servers` only where they were started."""

    urls: tuple[str, ...]
    key: str
    servers: VLLMServers | None = None


def launched(settings: EngineSettings, parts: EngineParts) -> Launched:
    """Start `settings.launch` servers; in a training of several processes the first one does, and
    the others wait.

    Raises LaunchFailed and NoCommand, on every rank.
    """
    _refuse_several_machines()
    mine: Launched | None = None
    error: Exception | None = None
    if parts.rank == 0:
        try:
            mine = _start(settings, parts)
        except Exception as problem:  # the other ranks must hear of it
            error = problem
    told = (mine.urls, mine.key, "") if mine else ((), "", str(error))
    try:
        urls, key, problem_there = parts.gather([told])[0]
    except BaseException:
        if mine and mine.servers:
            mine.servers.close()
        raise
    if error is not None:
        raise error
    if problem_there:
        raise LaunchFailed(f"rank 0: {problem_there}")
    remember_secret(key)
    return mine or Launched(urls, key)


def _start(settings: EngineSettings, parts: EngineParts) -> Launched:
    directory = parts.directory()
    servers = VLLMServers(
        parts.served(directory),
        settings.launch,
        directory,
        places=places(settings.launch, _devices(), _learners() if parts.learns else 0),
        command=settings.command,
        arguments=settings.launch_args,
        note=parts.note,
    )
    return Launched(servers.urls, servers.key, servers)


def _devices() -> Sequence[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not torch.cuda.is_available():
        return ()
    if named:
        return [name.strip() for name in named.split(",") if name.strip()]
    return [str(index) for index in range(torch.cuda.device_count())]


def _learners() -> int:
    """The number of training processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _refuse_several_machines() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > _learners():
        raise LaunchFailed(
            "servers that a run launches are reached from this machine only, and this training "
            "runs on several; start them yourself and name their addresses (engine_urls)"
        )
