"""A worker in a process of this machine; `workers.main` is what the process runs.

Both sides unpickle the other side's messages: a worker runs the environment's code, which is
trusted; a worker is not a sandbox. Untrusted data, a task, is sent as plain data.
"""

import contextlib
import pickle
import socket
import subprocess
import sys
from typing import Any

from agentsgym.child_process import python_environment, start_python
from agentsgym.rollout.workers import worker
from agentsgym.rollout.workers.channel import Channel, Deadline, TookTooLong
from agentsgym.rollout.workers.worker import Worker, WorkerLost, unpacked


class ProcessWorker(Worker):
    """One worker process. It ends when this process ends, in whatever way."""

    def __init__(self) -> None:
        super().__init__()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None

    @property
    def pid(self) -> int | None:
        """The process's id; None if there is none."""
        return self._process.pid if self._process else None

    def _running(self) -> bool:
        return self._process is not None

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start_python(
                "agentsgym.rollout.workers.main",
                str(theirs.fileno()),
                env=python_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                process_group=0,  # Ctrl-C at the terminal must only reach this process
            )
        self._channel = Channel(ours)

    def _install(self, env_id: int, payload: bytes) -> tuple[str, Any]:
        try:
            # This process may have more import paths now than when the worker was started.
            path = [entry for entry in sys.path if entry]
            return self._exchange(("install", env_id, payload, path), worker.START_SECONDS)
        except WorkerLost as error:
            raise WorkerLost(f"a worker process could not be started: {error}") from None

    def _exchange(self, message: tuple[Any, ...], timeout: float) -> tuple[str, Any]:
        number = next(self._numbers)
        try:
            answered, reply = self._sent(number, pickle.dumps(message), Deadline(timeout))
        except TookTooLong:
            self._kill()
            raise WorkerLost(
                f"the worker process gave no answer within {timeout:g} seconds"
            ) from None
        except (EOFError, OSError) as error:
            raise WorkerLost(self._end(error)) from None
        except BaseException:
            self._kill()  # its late answer would be taken for the answer to the next request
            raise
        if answered != number:
            self._kill()
            raise WorkerLost("the worker process answered something that was not requested")
        return unpacked(reply)

    def _sent(self, number: int, message: bytes, deadline: Deadline) -> tuple[int, bytes]:
        assert self._channel is not None
        self._channel.send(number, message, deadline)
        return self._channel.receive(deadline)

    def _end(self, error: Exception) -> str:
        """How the process ended, or what it sent instead of an answer."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        self._kill()
        if code is None:
            return f"the worker process gave no proper answer ({error!r})"
        return f"the worker process died (exit status {code})"

    def _interrupt(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def _kill(self) -> None:
        if self._process is None or self._channel is None:
            return
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._process = self._channel = None
        self._installed.clear()
