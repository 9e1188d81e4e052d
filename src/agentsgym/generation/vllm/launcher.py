"""Servers of a model that this process starts, waits for, and ends: of vLLM, or our own.

The invariant: however this process ends, its servers end too. Each one runs under a `keeper`, which
ends it when our end of a pipe closes.
"""

import http.client
import logging
import os
import secrets
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agentsgym import keeper
from agentsgym.child_process import free_ports
from agentsgym.generation.settings import SERVE_MODEL, EngineParts, EngineSettings
from agentsgym.generation.vllm.weight_files import ServedModel, served_model
from agentsgym.types.names import ConfigError
from agentsgym.types.text import mask_secrets, remember_secret, visible

START_SECONDS = 1800.0
"""A server that is not ready after this time counts as failed."""
_LOOK = 0.5  # seconds between two looks at a starting server
_NOTE = 20.0  # seconds between two notes
_TAIL = 4_000  # bytes at the end of a log that are read
_LINES = 8
_CPU_CONTEXT = 8192  # longest context on a CPU if nothing says how long rollouts are
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has
_SHARED = 0.45  # share of a GPU's memory for a server beside a learner
# What launchers of several processes set; a server is none of those processes.
_OF_LAUNCHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "FSDP_", "DEEPSPEED_")
_KEY = "VLLM_API_KEY"
# Our module path must not reach the interpreter of another virtual environment.
_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")

logger = logging.getLogger(__name__)
Note = Callable[[str], None]


class NoCommand(ConfigError):
    """There is no such program as the one that should serve."""


class LaunchFailed(RuntimeError):
    """A server ended, or was not ready in time; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where a server runs: on the GPU `name` (as in CUDA_VISIBLE_DEVICES), which `sharers`
    processes share; on the CPU if it is None."""

    name: str | None = None
    sharers: int = 1


def devices_for(count: int, names: Sequence[str], learners: int) -> list[Device]:
    """A device for each of `count` servers. Learners hold the first GPUs; each server gets one of
    the others, from the last on, and shares GPUs only if there are too few."""
    if not names:
        return [Device()] * count
    free = list(names[learners:]) or list(names)
    chosen = [free[-1 - index % len(free)] for index in range(count)]
    busy = names[:learners]
    return [Device(name, chosen.count(name) + (name in busy)) for name in chosen]


def find_program(command: str | None) -> list[str]:
    """The program that serves: `command` (SERVE_MODEL, a vllm executable, or the Python of an
    environment that has vLLM), by default the vllm of this environment. Raises NoCommand."""
    if command == SERVE_MODEL:
        return [sys.executable, "-P", "-m", "agentsgym", SERVE_MODEL]
    name = command or str(Path(sys.executable).with_name("vllm"))
    path = shutil.which(os.path.expanduser(name)) or (None if command else shutil.which("vllm"))
    if path is None:
        raise NoCommand(
            f"no program {name!r} can be started; name one that serves vLLM, such as "
            f"/other/venv/bin/vllm or that environment's python, or {SERVE_MODEL}"
        )
    is_python = Path(path).name.startswith("python")
    # A relative path would be another one in the server's working directory.
    program = os.path.abspath(path)
    return [program, *(["-m", "vllm.entrypoints.openai.api_server"] if is_python else ["serve"])]


def serve_command(
    program: Sequence[str], model: ServedModel, port: int, device: Device, more: Sequence[str]
) -> list[str]:
    """The command of one server; the user's own arguments `more` come last, so they win."""
    ours = program[-1] == SERVE_MODEL
    source = [model.folder] if ours or program[-1] == "serve" else ["--model", model.folder]
    command = [*program, *source, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", model.name, "--dtype", model.dtype]
    if ours:
        return [*command, "--key-env", _KEY, *more]
    command += ["--logprobs-mode", "processed_logprobs"]
    if rank := model.lora_rank:
        fits = next((offered for offered in _LORA_RANKS if offered >= rank), rank)
        # Two adapters: a new version is loaded before the old one is dropped.
        command += ["--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4"]
        command += ["--max-lora-rank", str(fits)]
    known = [length for length in (model.context, model.longest) if length]
    if device.name is None:
        length = str(min(known) if model.context else min([*known, _CPU_CONTEXT]))
        command += ["--enforce-eager", "--no-enable-chunked-prefill"]
        command += ["--max-model-len", length, "--max-num-batched-tokens", length]
    elif model.context:
        command += ["--max-model-len", str(min(known))]
    if device.name is not None and device.sharers > 1:
        command += ["--gpu-memory-utilization", f"{2 * _SHARED / device.sharers:.2f}"]
    return [*command, *more]


def serve_environment(
    ours: Mapping[str, str], device: Device, key: str, *, foreign: bool
) -> dict[str, str]:
    """The server's environment variables. `foreign` says that its program is of another virtual
    environment."""
    dropped = (*_OF_LAUNCHERS, *(_OF_PYTHON if foreign else ()))
    kept = {k: v for k, v in ours.items() if k not in dropped and not k.startswith(_PREFIXES)}
    env = {"VLLM_NO_USAGE_STATS": "1"} | kept
    env |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    env[_KEY] = key
    if device.name is not None:
        return env | {"CUDA_VISIBLE_DEVICES": device.name}
    return {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"} | env


@dataclass(frozen=True, slots=True)
class _Launched:
    port: int
    log: Path
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class VLLMServers:
    """`count` servers of one model on 127.0.0.1, ready to be asked.

    Args:
        model: what they serve.
        count: how many servers, one on each of `devices`.
        logs: a directory for their logs, `server-<number>.log`.
        devices: where they run; by default all on the CPU.
        command: as `find_program` takes it.
        arguments: more arguments of the command.
        note: is told what is being waited for.

    `urls` are their addresses, `key` is the key that they want. Raises NoCommand, and LaunchFailed
    after all of them were ended.
    """

    def __init__(
        self,
        model: ServedModel,
        count: int,
        logs: Path,
        *,
        devices: Sequence[Device] = (),
        command: str | None = None,
        arguments: Sequence[str] = (),
        note: Note = logger.info,
    ) -> None:
        self.key = secrets.token_urlsafe(24)
        remember_secret(self.key)
        program = find_program(command)
        logs.mkdir(parents=True, exist_ok=True)
        self._servers: list[_Launched] = []
        self._finalizer = weakref.finalize(self, _end, self._servers)
        try:
            for port, device in zip(free_ports(count), devices or [Device()] * count, strict=True):
                words = serve_command(program, model, port, device, arguments)
                foreign = command not in (None, SERVE_MODEL)
                env = serve_environment(os.environ, device, self.key, foreign=foreign)
                log = logs / f"server-{len(self._servers)}.log"
                with log.open("ab") as output:
                    process = subprocess.Popen(  # noqa: S603 - the user's own command
                        [sys.executable, "-I", keeper.__file__, *words],
                        env=env,
                        stdin=subprocess.PIPE,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                self._servers.append(_Launched(port, log, process))
            note(f"starting {_servers(count)} of {model.folder}, with logs in {logs}")
            self._wait(note)
        except BaseException:
            self.close()
            raise

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of the servers."""
        return tuple(server.url for server in self._servers)

    def close(self) -> None:
        """End the servers and wait until they are gone; may be called twice."""
        self._finalizer()

    def _wait(self, note: Note) -> None:
        """Wait until every server answers. Raises LaunchFailed."""
        started = noted = time.monotonic()
        waiting = list(self._servers)
        while waiting:
            for server in waiting:
                status = server.process.poll()
                if status is not None:
                    raise _failed(server, f"ended with status {status} before it was ready")
            waiting = [server for server in waiting if not _answers(server.port)]
            seconds = time.monotonic() - started
            if waiting and seconds > START_SECONDS:
                raise _failed(waiting[0], f"is not ready after {seconds:.0f} s")
            if waiting and time.monotonic() - noted > _NOTE:
                noted = time.monotonic()
                where = waiting[0].log
                note(f"waiting for {_servers(len(waiting))} since {seconds:.0f} s; log: {where}")
            time.sleep(_LOOK if waiting else 0)
        note(f"{_servers(len(self._servers))} ready after {time.monotonic() - started:.0f} s")


def launched(
    settings: EngineSettings, parts: EngineParts
) -> tuple[Sequence[str], str, VLLMServers | None]:
    """Start `settings.launch` servers; in a training of several processes the first one does, and
    the others wait. Returns their addresses, their key, and the servers where they were started.

    Raises LaunchFailed and NoCommand, on every rank.
    """
    learners = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if int(os.environ.get("WORLD_SIZE", "1")) > learners:
        raise LaunchFailed(
            "servers that a run launches are reached from this machine only, and this training "
            "runs on several; start them yourself and name their addresses (engine.urls)"
        )
    servers: VLLMServers | None = None
    error: Exception | None = None
    if parts.rank == 0:
        try:
            directory = parts.directory()
            servers = VLLMServers(
                served_model(parts.served(), directory),
                settings.launch,
                directory,
                devices=devices_for(settings.launch, _gpus(), learners if parts.learns else 0),
                command=settings.command,
                arguments=[*_own_arguments(settings), *settings.launch_args],
                note=parts.note,
            )
        except Exception as problem:  # the other ranks must hear of it
            error = problem
    mine = (servers.urls, servers.key, "") if servers else ((), "", str(error))
    try:
        urls, key, problem_there = parts.gather([mine])[0]
    except BaseException:
        if servers is not None:
            servers.close()
        raise
    if error is not None:
        raise error
    if problem_there:
        raise LaunchFailed(f"rank 0: {problem_there}")
    remember_secret(key)
    return urls, key, servers


def _own_arguments(settings: EngineSettings) -> list[str]:
    """The arguments of our own servers, which have as many threads as this process."""
    if settings.command != SERVE_MODEL:
        return []
    import torch

    capacity = [] if settings.capacity is None else ["--capacity", str(settings.capacity)]
    return ["--threads", str(torch.get_num_threads()), *capacity]


def _gpus() -> Sequence[str]:
    """The GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them; CUDA reads its names up
    to the first that is no GPU, such as -1."""
    import torch

    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    return [name.strip() for name in names.split(",")][:count]


def _servers(count: int) -> str:
    return "a server" if count == 1 else f"{count} servers"


def _end(servers: list[_Launched]) -> None:
    """End servers; their keepers do it, and are killed if they do not end themselves."""
    for server in servers:
        if server.process.stdin is not None:
            with suppress(OSError):
                server.process.stdin.close()
    for server in servers:
        try:
            server.process.wait(2 * keeper.GRACE)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()


def _answers(port: int) -> bool:
    """Whether the server at a port of this machine says that it is well."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _failed(server: _Launched, what: str) -> LaunchFailed:
    last = _end_of(server.log) or "nothing"
    return LaunchFailed(f"the server at {server.url} {what}; {server.log} ends: {last}")


def _end_of(log: Path) -> str:
    """The last lines of a log."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        lines = visible(mask_secrets(file.read().decode(errors="replace"))).splitlines()
        return " / ".join([line.strip() for line in lines if line.strip()][-_LINES:])
    return ""
