"""The processes of a run: what cannot work in several, starting those of this machine, and watching
them until all have ended.

They find each other by the variables that every launcher of torch sets (`RANK`, `WORLD_SIZE`, …),
so a run does not know whether this module or `accelerate launch` started it.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentsgym.child_process import free_ports, start_python
from agentsgym.envs import ConfigError
from agentsgym.generation.factory import choose
from agentsgym.runs.settings import RunConfig

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

SHARING = ("deepspeed", "fsdp", "fsdp_config")
"""The trainer's settings for how several processes hold the model."""

OTHER_FAILED = 3
"""Exit status of a process that ended because another one of the run had failed."""

_LOCAL = ("localhost", "127.0.0.1", "::1")
_GRACE = 20.0
"""Seconds in which the others must end by themselves once one has failed."""
_LOOK = 0.1  # seconds
_TAIL = 4000  # characters

Child = subprocess.Popen[Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """How the processes of a run ended: the `status` of the first that failed (0: none did,
    negative: the signal that killed it), its `rank`, and what it printed, except for rank 0."""

    status: int = 0
    rank: int = 0
    output: str = ""


def processes_started() -> int:
    """The number of processes that a launcher started; 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_other_rank() -> bool:
    """Whether this is another process than the first one, which has the terminal."""
    return os.environ.get("RANK", "0") != "0"


def processes_here() -> int:
    """The number of them on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", str(processes_started())))


# -- what cannot work ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """The learners of a run: `processes` in all, on `machines`."""

    processes: int = 1
    machines: int = 1


def check_processes(config: RunConfig, launch: Launch, settings: "GRPOEnvConfig") -> None:
    """Raise ConfigError for a model, an engine or servers that cannot work with this launch."""
    for problem in _problems(config, launch, settings):
        raise ConfigError(problem)


def _problems(config: RunConfig, launch: Launch, settings: "GRPOEnvConfig") -> Iterator[str]:
    engine, entry = config.engine, choose(config.engine, training=True)
    if launch.processes % launch.machines:
        yield f"{launch.machines} machines cannot share {launch.processes} processes equally"
    if config.distributed == "fsdp2" and launch.processes > 1 and not entry.remote:
        yield (
            f"distributed: fsdp2 splits the model over {launch.processes} processes, and the "
            "embedded engine samples from the whole model; name vLLM servers in engine.urls, or "
            "set distributed: zero2"
        )
    shares = config.distributed != "ddp" or any(map(config.train.given.get, SHARING))
    if config.keep_best and shares and launch.processes > 1:
        yield "keep_best needs the whole weights in each process; leave distributed at ddp"
    for key in SHARING:
        if config.distributed != "ddp" and config.train.given.get(key):
            yield f"distributed: {config.distributed} sets train.{key}; leave one of them out"
    for url in engine.urls:
        if engine.urls.count(url) > 1:
            yield f"engine.urls names {url} twice"
        if launch.machines > 1 and urlsplit(url).hostname in _LOCAL:
            yield (
                f"engine.urls: {url} is another server on each of the {launch.machines} machines; "
                "name the host of the server"
            )
    if launch.machines > 1 and engine.launch:
        yield (
            "engine.launch starts servers on one machine, and the learners are on "
            f"{launch.machines}; start the servers and name them in engine.urls"
        )
    if settings.max_staleness and not entry.remote:
        yield (
            f"train.max_staleness={settings.max_staleness} needs an engine that samples beside the "
            "optimizer: name servers in engine.urls, or let the run start them (engine.launch; on "
            "a CPU with engine.command=serve-model)"
        )


# -- on this machine -------------------------------------------------------------------------------


def run_processes(count: int, arguments: Sequence[str]) -> Ended:
    """Run the command line with these arguments in `count` processes that train together, and wait
    until all have ended. Rank 0 has this terminal. Ctrl-C and SIGTERM go to all of them. Once one
    has failed, those that do not end by themselves are killed."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count - 1)]
        children: list[Child] = []

        def forward(number: int, frame: Any) -> None:
            for child in children:
                child.send_signal(number)

        stack.enter_context(handled(forward, signal.SIGINT, signal.SIGTERM))
        port = free_ports(1)[0]
        for rank, file in enumerate([None, *files]):
            children.append(_start(rank, count, port, file, arguments))
        killed = _watch(children)
        return _ended(children, killed, files)


def _start(
    rank: int, count: int, port: int, file: IO[bytes] | None, arguments: Sequence[str]
) -> Child:
    threads = max(1, (os.cpu_count() or 1) // count)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    variables = {name: str(value) for name, value in (place | address).items()}
    defaults = {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return start_python(
        "agentsgym",
        *arguments,
        env={**defaults, **os.environ, **variables},
        stdout=file,
        stderr=file,
        process_group=0,  # a Ctrl-C of the terminal reaches them by `forward`, once
    )


def _watch(children: Sequence[Child]) -> set[int]:
    """Wait until all have ended; return the ranks that were killed for it."""
    failed_at, killed = None, set[int]()
    while alive := {rank for rank, child in enumerate(children) if child.poll() is None}:
        if failed_at is None and any(child.returncode for child in children):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > _GRACE:
            killed |= alive
            for rank in alive:
                children[rank].kill()
        time.sleep(_LOOK)
    return killed


def _ended(children: Sequence[Child], killed: set[int], files: Sequence[IO[bytes]]) -> Ended:
    codes = [child.returncode for child in children]
    others = {0, OTHER_FAILED}
    own = [r for r, code in enumerate(codes) if code not in others and r not in killed]
    if not own:
        return Ended(max(codes))
    rank = own[0]
    if rank == 0:
        return Ended(codes[0])
    file = files[rank - 1]
    file.seek(0)
    return Ended(codes[rank], rank, file.read().decode(errors="replace")[-_TAIL:])


@contextmanager
def handled(handle: Callable[[int, Any], None], *numbers: int) -> Iterator[None]:
    """Inside the block, signals are handled so. Has no effect outside the main thread, because
    Python handles signals only there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
