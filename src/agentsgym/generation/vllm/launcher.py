"""vLLM servers that this process starts, waits for, and ends.

The invariant: however this process ends, its servers end too. Each one runs under a `keeper`, which
ends it when our end of a pipe closes.
"""

import http.client
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from agentsgym.generation.settings import ServedModel
from agentsgym.generation.vllm import keeper
from agentsgym.generation.vllm.serve_command import (
    Place,
    find_program,
    serve_command,
    serve_environment,
)
from agentsgym.types.text import mask_secrets, remember_secret, visible

START_SECONDS = 1800.0
"""A server that is not ready after this time counts as failed."""
_LOOK = 0.5  # seconds between two looks at a starting server
_NOTE = 20.0  # seconds between two notes
_TAIL = 20_000  # bytes at the end of a log that are read
_LINES = 4
_CAUSE = re.compile(r"\b\w*(Error|Exception): \S")
_PREFIX = re.compile(r"^(\(\w+[^)]*\) )?(ERROR|INFO|WARNING|DEBUG) [\d-]+ [\d:]+ (\[[^\]]*\] )?")

logger = logging.getLogger(__name__)
Note = Callable[[str], None]


class LaunchFailed(RuntimeError):
    """A vLLM server ended, or was not ready in time; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class _Server:
    url: str
    port: int
    log: Path
    process: "subprocess.Popen[bytes]"


class VLLMServers:
    """`count` vLLM servers of one model on 127.0.0.1, ready to be asked.

    Args:
        model: what they serve.
        count: how many servers, one on each of `places`.
        logs: a directory for their logs, `server-<number>.log`.
        places: where they run; by default all on the CPU.
        command: a vllm executable, or the Python of an environment that has vLLM; by default the
            vllm of this environment.
        arguments: more arguments of `vllm serve`.
        note: is told what is being waited for.

    They may be used as a context manager. `urls` are their addresses, `key` is the key that they
    want. Raises NoCommand, and LaunchFailed after all of them were ended.
    """

    def __init__(
        self,
        model: ServedModel,
        count: int,
        logs: Path,
        *,
        places: Sequence[Place] = (),
        command: str | None = None,
        arguments: Sequence[str] = (),
        note: Note = logger.info,
    ) -> None:
        self.key = secrets.token_urlsafe(24)
        remember_secret(self.key)
        program = find_program(command)
        logs.mkdir(parents=True, exist_ok=True)
        self._servers: list[_Server] = []
        self._finalizer = weakref.finalize(self, _end, self._servers)
        try:
            for port, place, index in zip(
                _free_ports(count), places or [Place()] * count, range(count), strict=True
            ):
                words = serve_command(program, model, port, place, arguments)
                env = serve_environment(os.environ, place, self.key, foreign=command is not None)
                log = logs / f"server-{index}.log"
                self._servers.append(_start(words, env, port, log))
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

    def __enter__(self) -> "VLLMServers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, note: Note) -> None:
        """Wait until every server answers. Raises LaunchFailed."""
        started = told = time.monotonic()
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
            if waiting and time.monotonic() - told > _NOTE:
                told = time.monotonic()
                last = "".join(_last_lines(waiting[0].log, 1)) or "nothing yet"
                note(f"waiting for {_servers(len(waiting))} since {seconds:.0f} s: {last}")
            time.sleep(_LOOK if waiting else 0)
        note(f"{_servers(len(self._servers))} ready after {time.monotonic() - started:.0f} s")


def _servers(count: int) -> str:
    return "a vLLM server" if count == 1 else f"{count} vLLM servers"


def _start(words: Sequence[str], env: dict[str, str], port: int, log: Path) -> _Server:
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            [sys.executable, "-I", keeper.__file__, *words],
            env=env,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return _Server(f"http://127.0.0.1:{port}", port, log, process)


def _end(servers: list[_Server]) -> None:
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


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until the last is found, so none comes twice."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


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


def _failed(server: _Server, what: str) -> LaunchFailed:
    said = " / ".join(_last_lines(server.log, _LINES)) or "nothing"
    return LaunchFailed(f"the vLLM server at {server.url} {what}; {server.log} ends: {said}")


def _last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log that say something; before them the last exception, which vLLM's
    own last lines only refer to."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        text = mask_secrets(file.read().decode(errors="replace"))
        lines = [_PREFIX.sub("", visible(line)).strip()[:200] for line in text.splitlines()]
        lines = [line for line in lines if line]
        causes = [line for line in lines[:-count] if _CAUSE.search(line)] if count > 1 else []
        return [*causes[-1:], *lines[-count:]]
    return []
